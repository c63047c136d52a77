"""Hypothesis profiles, the pool of worker processes, and what a machine must have for marked tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.distributed.pool import WorkerPool
from tests.points import covering, has_more_examples

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60, print_blob=True)
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)

FEW_EXAMPLES = 20
"""Of a property, with --few-points, unless its test says how many it needs."""


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Up to four reusable processes over Gloo; see `tests.distributed.pool`."""
    with WorkerPool() as workers:
        yield workers


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make test`` ask for few points of each test, and ``make test-all`` for what that leaves out."""
    parser.addoption(
        "--few-points",
        action="store_true",
        help="of a test with many parameters run points that have every value once (see tests/points.py)",
    )
    parser.addoption(
        "--other-points",
        action="store_true",
        help="run the points that --few-points leaves out, and properties with all examples",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples of each property where few points are asked for."""
    if config.getoption("--few-points"):
        settings.register_profile("few", parent=settings.get_profile(PROFILE), max_examples=FEW_EXAMPLES)
        settings.load_profile("few")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out points that were not asked for; skip, with the reason, what this machine cannot run."""
    few, others = config.getoption("--few-points"), config.getoption("--other-points")
    if few or others:
        covered = covering(items)
        more = {item for item in items if item not in covered or has_more_examples(item)}
        chosen = covered if few else more
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    missing = {"gpu": _missing_for_gpu, "privileged": _missing_for_privileged}
    for marker, reason_for in missing.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = reason_for() if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing_for_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def _missing_for_privileged() -> str | None:
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    absent = [program for program in ("ip", "tc", "bridge") if shutil.which(program) is None]
    return f"needs iproute2; missing: {', '.join(absent)}" if absent else None
