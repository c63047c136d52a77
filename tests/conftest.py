"""Hypothesis profiles, the pool of worker processes, and what a machine must have for marked tests."""

import functools
import gc
import os
import shutil
import signal
from collections.abc import Iterator

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

from tests.budget import KEPT, Budget
from tests.distributed.pool import WorkerPool
from tests.points import covering

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60, print_blob=True)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)

# A runner would build the tree of commands for each call, which takes as long as most calls.
typer.testing._get_command = functools.cache(typer.testing._get_command)

EXAMPLES = {"few": 20, "more": 40}
"""Of a property at these levels of points, unless its test says how many it needs."""


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Up to four reusable processes over Gloo; see `tests.distributed.pool`."""
    with WorkerPool() as workers:
        yield workers


@pytest.fixture
def ignores_interrupts() -> Iterator[None]:
    """Let this process, and those that it starts, ignore SIGINT as a job in the background does."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let each target of make say at how many points it keeps the promises of tests."""
    parser.addoption(
        "--points",
        choices=["few", "more", "all"],
        default="all",
        help="of a test with many parameters: few, those of costly tests too, or all (tests/points.py)",
    )
    parser.addoption(
        "--write-durations",
        action="store_true",
        help=f"write the processor time of each file of tests to {KEPT.name} (tests/budget.py)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, draw fewer examples of each property where fewer points are asked for, and measure."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    level = config.getoption("--points")
    if level in EXAMPLES:
        profile = settings.get_profile(PROFILE)
        settings.register_profile(level, parent=profile, max_examples=EXAMPLES[level])
        settings.load_profile(level)
    config.pluginmanager.register(Budget(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out points that were not asked for; skip, with the reason, what this machine cannot run."""
    level = config.getoption("--points")
    if level != "all":
        chosen = covering(items, costly=level == "more")
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    missing = {"gpu": _missing_for_gpu, "privileged": _missing_for_privileged}
    for marker, reason_for in missing.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = reason_for() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Keep searches for garbage, of which there are many, from going through all that was imported."""
    gc.collect()
    gc.freeze()


def _missing_for_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def _missing_for_privileged() -> str | None:
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    absent = [program for program in ("ip", "tc", "bridge") if shutil.which(program) is None]
    return f"needs iproute2; missing: {', '.join(absent)}" if absent else None
