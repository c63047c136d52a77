"""Entry points of this package for torch, pytest and the command line, under a name that nobody else has.

Entry points are found by name, and what lies beside a program is found first.  Under a name such as
``collectives`` or ``testbed`` a user's own file would be loaded in our place, and ``import torch`` or pytest
would fail in every program of that folder.  So they load this module, which imports nothing of ours before
the testbed is asked for: until then a program's own ``testbed.py`` is the one that it imports.  Where
something stands in the way by then, the error says what and what to do.

Pytest need not rewrite what is here (PYTEST_DONT_REWRITE): torch may have loaded it before.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from testbed.testing import VirtualCluster

BACKEND = "testbed"
PACKAGES = ("collectives", "ddp", "sim", "testbed")
PAGE_OPTION = "--testbed-html"
FIXTURE = "virtual_cluster"
ON_RANKS = "on_ranks"
"""What a test that runs as ranks has."""

project_folder: Path | None = None
"""While pytest runs: its root, whose project says what holds where tests say nothing."""


class InTheWayError(ImportError):
    """What the program finds under the name of a package of ours is something else."""


def require(*packages: str) -> None:
    """Check that *packages*, by default all, are ours where this program finds them.

    Raises:
        InTheWayError: one is not; names the file or the folder that is found in its place.
    """
    for name in packages or PACKAGES:
        place = _place_of(name)
        if place is not None and not (place.parent.parent / Path(__file__).name).is_file():
            found = place.parent if place.name == "__init__.py" else place
            raise InTheWayError(
                f"{found} stands in the way of the package {name!r} of collective-testbed: "
                "rename it, or keep its folder out of sys.path"
            )


def _place_of(name: str) -> Path | None:
    """Return the file of a module that is loaded or would be, of a package ``__init__.py``."""
    spec: ModuleSpec | None = None
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is None and spec.submodule_search_locations:  # a folder without __init__.py
        return Path(next(iter(spec.submodule_search_locations)), "__init__.py").absolute()
    return Path(str(spec.origin)).absolute()


def main() -> None:
    """Run the command line."""
    try:
        require()
    except InTheWayError as error:
        with contextlib.suppress(AttributeError, OSError):
            print(f"testbed: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    from testbed.cli import main as run

    run()


def register_backend() -> None:
    """Make ``testbed`` known to ``torch.distributed``, if this torch has it; never raises.

    Torch calls it at the end of every ``import torch`` of the environment, so that
    ``init_process_group("testbed")`` works in a script that imports nothing of ours.
    """
    with contextlib.suppress(Exception):
        distributed = sys.modules["torch.distributed"]
        if distributed.is_available() and BACKEND not in distributed.Backend.backend_list:
            distributed.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    """Create the process group, when a script first asks for one."""
    try:
        from collectives.torch_backend import create
    except ImportError:
        require("collectives")
        raise
    return create(options, backend_options)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer a page of what failed."""
    parser.getgroup("testbed").addoption(
        PAGE_OPTION,
        metavar="FILE",
        type=Path,
        help="write a page of the tests that failed, with timelines of their ranks, to FILE",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Offer the fixture, and begin a page if one is wanted and can be written.

    Raises:
        pytest.UsageError: it cannot be written, or something stands in the way of our packages.
    """
    import pytest

    global project_folder
    project_folder = config.rootpath

    class Fixtures:
        @pytest.fixture
        def virtual_cluster(self) -> type[VirtualCluster]:
            """Make clusters in virtual time: ``virtual_cluster(ranks=4, network="dgx-h100").run(fn)``."""
            try:
                require()
            except InTheWayError as error:
                pytest.fail(str(error), pytrace=False)
            from testbed.testing import VirtualCluster

            return VirtualCluster

    config.pluginmanager.register(Fixtures(), "testbed-fixtures")
    path = config.getoption(PAGE_OPTION)
    if path is None:
        return
    try:
        require()
    except InTheWayError as error:
        raise pytest.UsageError(f"{PAGE_OPTION}: {error}") from None
    from testbed.pytest_plugin import begin_page

    begin_page(config, path, PAGE_OPTION)


def pytest_unconfigure() -> None:
    """Let functions run as ranks outside of pytest again."""
    global project_folder
    project_folder = None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import what tests on ranks need, before the first of them, of whose time it would be the most."""
    functions = [
        item.function
        for item in session.items
        if hasattr(item, "function")
        and (hasattr(item.function, ON_RANKS) or FIXTURE in getattr(item, "fixturenames", ()))
    ]
    if not functions or session.config.option.collectonly:
        return
    with contextlib.suppress(ImportError):  # the first test that needs it says so
        require()
        from testbed.testing import prepare

        prepare(functions)


def pytest_exception_interact(call: Any, report: Any) -> None:
    """Say what stands in the way, where a test could not import what it wants of ours."""
    for error in _causes(call.excinfo.value):
        if isinstance(error, InTheWayError) or not isinstance(error, ImportError):
            continue
        name = str(error.name).partition(".")[0]
        if name not in PACKAGES:
            continue
        try:
            require(name)
        except InTheWayError as found:
            report.sections.append(("testbed", f"if ours is meant: {found}"))
            return


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
