"""Scripts that commands are given: run on rank threads, or recorded, and the errors that they end with.

A script that is recorded runs unmodified in this process and sees what it would see under ``python
script.py``; where torchrun has not started us, also the variables that torchrun sets for one process.  When
the recording is full, the next forward pass raises `EnoughRecorded`, which is no `Exception`, so that the
script's own handlers let it through and its ``finally`` blocks run.
"""

from __future__ import annotations

import os
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import Topology
from sim.errors import RankError
from testbed.errors import LaunchError, UsageError
from testbed.options.arguments import parse_compute_model
from testbed.scripts.launch import free_port
from testbed.scripts.rank_output import RankOutput, StatusLine
from testbed.scripts.stopping import stopped_at_once

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from ddp.recording import Recording


class ScriptError(LaunchError):
    """The script failed; its own traceback has been printed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def check_script(script: str | Path, *, is_module: bool = False) -> None:
    """Check that there is such a file; modules are looked for when they are to run.

    Raises:
        UsageError: there is none.
    """
    if not is_module and not Path(script).is_file():
        what = "is a folder; name the script in it" if Path(script).is_dir() else "there is no such script"
        raise UsageError(f"{script}: {what}")


def print_traceback(error: BaseException, script: str | Path) -> None:
    """Print the script's part of the traceback, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


class EnoughRecorded(BaseException):
    """Ends a script that has been recorded long enough."""


def observe_script(path: Path, arguments: Sequence[str], recording: Recording) -> None:
    """Run the script at *path* with *arguments* inside *recording*.

    Raises:
        UsageError: there is no such file.
        ScriptError: it raised, or ended with another code than 0.
        KeyboardInterrupt: it was interrupted.
    """
    check_script(path)
    from collectives.torch_backend.script import Script
    from testbed.scripts.loopback import listening_on_loopback

    recording.on_full = _stop
    try:
        script = Script(path, arguments)
        with _environment_of_one_process(), listening_on_loopback(), script.as_main() as main, recording:
            script.run(main)
    except EnoughRecorded:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
    except SystemExit as end:
        if not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else 1
        raise ScriptError(f"{path} ended with exit code {code}", code) from None
    except Exception as error:
        print_traceback(error, path)
        raise ScriptError(f"{path} failed: {type(error).__name__}: {error}", 1) from None


def _stop() -> None:
    raise EnoughRecorded


@contextmanager
def _environment_of_one_process() -> Iterator[None]:
    """Let the environment be that of one process under torchrun, unless torchrun has set it."""
    before = dict(os.environ)
    if "RANK" not in os.environ:
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= {**alone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


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
    notes = getattr(error, "__notes__", ())  # what the other ranks did, and what to try
    if isinstance(cause, SystemExit):
        _print_notes(notes)
        if isinstance(cause.code, int):
            way_out = "" if output.is_heard(error.rank) else f"; what it printed: --output {error.rank}"
            return ScriptError(f"{where}: ended with exit code {cause.code}{way_out}", 1)
        return ScriptError(f"{where}: ended with: {cause.code}", 1)
    assert cause is not None
    print_traceback(cause, script)
    _print_notes(notes)
    report = getattr(error, "report", None)
    if report is not None and report.memory is not None:
        return DeviceMemoryError(
            f"{where}: {report.memory.text}; --memory-limit off goes on all the same", report
        )
    return ScriptError(f"{where}: {type(cause).__name__}: {cause}", 1)


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(textwrap.indent(note, "  "), file=sys.stderr)
