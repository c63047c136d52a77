"""Errors that the command line reports as one line, their exit codes, and what is not installed.

0  everything that was asked for was done, and every check held
1  a check or a run failed: a wrong program, a mismatch, a time-out, a rank that died
2  usage: a bad argument, file, network or profile, a port in use, a folder without permission
130  Ctrl-C or SIGTERM; what was found by then is given all the same

A time limit that was asked for is no failure where something was found within it.

TestbedError (1)
 ├── UsageError   (2)  the request cannot be carried out as written
 ├── CheckError   (1)  something that the command promises to check does not hold
 └── LaunchError  (1)  a process that was started failed, or did not end in time
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import unicodedata
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, TypeVar

import typer

from collectives.errors import AlgorithmFileError, CollectiveError, NotSupportedError
from ddp.errors import DDPError

P = ParamSpec("P")
T = TypeVar("T")

TORCH = "real runs and scripts need torch"
"""What is said where torch, which an extra brings, is not installed."""
INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""


class TestbedError(Exception):
    """Base of the errors of this package."""

    exit_code = 1


class UsageError(TestbedError):
    """The request cannot be carried out as it is written."""

    exit_code = 2


class CheckError(TestbedError):
    """A property that the command checks does not hold; the message is the evidence."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LaunchError(TestbedError):
    """A process that was started failed, or did not end in time."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as ``kill`` sends it, where processes that were started are to be ended first.

    Whoever has something to finish after Ctrl-C does so then, too.
    """


def exit_code_of(error: Exception) -> int | None:
    """Return the exit code for an error that a user can cause, None for one of ours."""
    if isinstance(error, TestbedError):
        return error.exit_code
    if isinstance(error, OSError):
        return 2
    if not _raised_by_a_layer_below(error):
        return None
    usage = (ValueError, AlgorithmFileError, NotSupportedError)
    return 2 if isinstance(error, usage) else 1


def _raised_by_a_layer_below(error: Exception) -> bool:
    """Return whether *error* is one that `collectives`, `ddp` or `sim` raises on purpose."""
    if isinstance(error, CollectiveError | DDPError):
        return True
    from sim.errors import SimulationError  # brings the whole simulator

    return isinstance(error, SimulationError)


def reporting_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turn the errors that a user can cause into one message on stderr and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            drop_stdout()  # the reader, such as `head`, has what it wanted
            raise typer.Exit(0) from None
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "torch" or has_torch():
                raise
            print(f"testbed: error: {how_to_install(TORCH, 'torch')}", file=sys.stderr)
            raise typer.Exit(UsageError.exit_code) from None
        except KeyboardInterrupt as interrupt:
            said = "terminated" if isinstance(interrupt, Terminated) else "interrupted"
            print("; ".join([f"testbed: {said}", *map(str, interrupt.args)]), file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            code = exit_code_of(error)
            lacked = _lacked_by_torch(error)
            if code is None and lacked is None:
                raise
            print(f"testbed: error: {lacked or _spell(error)}", file=sys.stderr)
            raise typer.Exit(1 if code is None else code) from None

    return wrapper


def _lacked_by_torch(error: Exception) -> str | None:
    """Return, of an error that a name of torch is missing, which and what to do; None: it is another."""
    if isinstance(error, AttributeError):
        owner = getattr(error.obj, "__name__", type(error.obj).__name__)
        module = owner if isinstance(error.obj, ModuleType) else getattr(error.obj, "__module__", None)
        name = f"{owner}.{error.name}"
    elif isinstance(error, ImportError):
        module, name = error.name, f"what is imported of {error.name} ({error})"
    else:
        return None
    if str(module).partition(".")[0] != "torch":
        return None
    import torch

    return f"torch {torch.__version__} lacks {name}; testbed doctor says what else, and what needs it"


def drop_stdout() -> None:
    """Let what goes to stdout from now on go nowhere, as nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _spell(error: Exception) -> str:
    """Return the message of *error*, in which a terminal finds nothing to obey."""
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        notes = "\n".join(getattr(error, "__notes__", ()))
        message = "\n  ".join([str(error) or type(error).__name__, *notes.splitlines()])
    return visible(message)


def visible(text: str) -> str:
    """Return *text* with control characters spelled, but for tabs and new lines: a terminal obeys none."""
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) != "Cc" else ascii(sign)[1:-1] for sign in text
    )


def how_to_install(what: str, extra: str) -> str:
    """Return *what* is missing, and how the *extra* that brings it is installed."""
    return (
        f"{what}, which the extra {extra} brings: in a checkout of this project, pip install -e '.[{extra}]'"
    )


def is_installed(module: str) -> bool:
    """Return whether *module*, which an extra brings, is there to be imported."""
    return importlib.util.find_spec(module) is not None


def has_torch() -> bool:
    """Return whether torch is installed."""
    return is_installed("torch")
