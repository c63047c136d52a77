"""Scripts on rank threads for the command line: their output and their failures."""

from __future__ import annotations

import sys
import textwrap
import traceback
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.options.arguments import parse_compute_model
from testbed.scripts.rank_output import RankOutput, StatusLine
from testbed.scripts.script import ScriptError, check_script, print_traceback
from testbed.scripts.stopping import stopped_at_once

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from sim import Topology
    from sim.errors import RankError


class DeviceMemoryError(ScriptError):
    """The script ran out of the memory of a GPU; its traceback has been printed.

    Attributes:
        report: of the run up to there.
    """

    def __init__(self, message: str, report: VirtualReport) -> None:
        super().__init__(message, 1)
        self.report = report


def run_script(
    script: str,
    arguments: Sequence[str],
    topology: Topology,
    *,
    module: bool,
    compute: str,
    heard: str,
    as_json: bool,
    **options: Any,
) -> VirtualReport:
    """Run *script* on every rank of *topology* and return what it has taken.

    Args:
        script: its path, or with *module* its name as of a module.
        arguments: of the script.
        topology: the network.
        module: whether *script* is a module.
        compute: how computation takes time, as `collectives.virtual.computation.parse_compute` reads it.
        heard: whose output is shown, see `RankOutput`.
        as_json: whether stdout is for a document.
        options: other arguments of `collectives.virtual.run`.

    Raises:
        UsageError: there is no such script or rank.
        ScriptError: the script failed; its traceback has been printed.  `DeviceMemoryError` has the report.
        SimulationError: ranks wait in vain, or lost messages.
    """
    check_script(script, is_module=module)
    what = f"{topology.num_ranks} ranks on {topology.name}"
    status = StatusLine(what, sys.stderr) if sys.stderr.isatty() else None
    before_write = None if status is None else status.make_way
    output = RankOutput(heard, topology.num_ranks, as_json=as_json, before_write=before_write)

    from collectives.virtual import Module, run
    from sim.errors import RankError

    if status is not None:
        status.show(0, 0)
    try:
        with closing(output), output.debugged(), stopped_at_once():
            return run(
                Module(script) if module else script,
                network=topology,
                argv=arguments,
                compute=parse_compute_model(compute),
                **options,
                streams=output.of,
                watch=None if status is None else status.show,
            ).report
    except RankError as error:
        raise _failure(error, script, output) from None
    except SyntaxError as error:
        traceback.print_exception(type(error), error, None)
        raise ScriptError(f"{script} cannot be read as Python", 1) from None
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from None


def _failure(error: RankError, script: str, output: RankOutput) -> BaseException:
    """Print what has ended the rank, beginning in the script, and return what the command raises."""
    cause = error.__cause__
    where = f"{script}, rank {error.rank}"
    if isinstance(cause, BrokenPipeError):
        return cause
    if isinstance(cause, SystemExit):
        if isinstance(cause.code, int):
            way_out = "" if output.is_heard(error.rank) else f"; what it printed: --output {error.rank}"
            return ScriptError(f"{where}: ended with exit code {cause.code}{way_out}", 1)
        return ScriptError(f"{where}: ended with: {cause.code}", 1)
    assert cause is not None
    print_traceback(cause, script)
    for note in getattr(error, "__notes__", ()):  # what the other ranks did, and what to try
        print(textwrap.indent(note, "  "), file=sys.stderr)
    report = getattr(error, "report", None)
    if report is not None and report.memory is not None:
        return DeviceMemoryError(
            f"{where}: {report.memory.text}; --memory-limit off goes on all the same", report
        )
    return ScriptError(f"{where}: {type(cause).__name__}: {cause}", 1)
