"""Programs in users' files: ``FILE.py:FUNCTION``, run within bounds wherever it is run; and the files."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, wraps
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from collectives.catalogue import bounds
from collectives.catalogue.bounds import OutOfBoundsError, within
from collectives.errors import AlgorithmFileError, CollectiveError, ProgramError
from collectives.program import Algorithm, Program
from collectives.program.program import iterator_of

MAX_STEPS = 100_000
MAX_STEPS_PER_RANK = 64
"""Steps, and more for each rank of the world, after which a program in a file counts as endless."""

MODULE_PREFIX = "_algorithm_file_"
"""Of the names in ``sys.modules`` of files of programs; what they hold is read whenever one is asked for."""

_END = object()


def load_program(path: Path, function: str) -> Program | Algorithm:
    """Return the program that is called *function* in the file at *path*.

    A file is imported once in a process, and again when it has changed.

    Raises:
        AlgorithmFileError: the file or the function in it cannot be loaded.
    """
    module = load_module(path)
    program = getattr(module, function, None)
    if not callable(program):
        names = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
        nearest = difflib.get_close_matches(function, names, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise AlgorithmFileError(f"{path}: no function {function!r} in this file{hint}")
    if isinstance(program, Algorithm):
        return _bounded_algorithm(program)
    try:
        inspect.signature(program)
    except (TypeError, ValueError):
        raise AlgorithmFileError(
            f"{path}: {function!r} is no function of Python's, so that its parameters are not known"
        ) from None
    return _bounded(program)


def load_module(path: Path) -> ModuleType:
    """Return the module that the file at *path* is, imported once in a process as long as it does not change.

    Raises:
        AlgorithmFileError: it cannot be read, or not be imported within bounds.
    """
    if not path.is_file():
        raise AlgorithmFileError(f"{path}: no such file; expected FILE.py:NAME")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise AlgorithmFileError(f"{path}: cannot read this file: {error.strerror}") from None
    return _module(path, source)


@lru_cache(maxsize=64)
def _module(path: Path, source: bytes) -> ModuleType:
    """Return the module that the file at *path* is as long as it holds *source*."""
    module_name = f"{MODULE_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise AlgorithmFileError(f"{path}: not a Python file")

    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        within(bounds.IMPORT_SECONDS, lambda: exec(compile(source, str(path), "exec"), vars(module)))
    except OutOfBoundsError as error:
        raise AlgorithmFileError(f"{path}: on import: {error}") from None
    except Exception as error:
        raise AlgorithmFileError(f"{path}: {type(error).__name__} on import: {error}") from error
    return module


def _bounded_algorithm(algorithm: Algorithm) -> Algorithm:
    """Return *algorithm* with all its functions within bounds, unless it is not of the file."""
    if algorithm.program.__module__.startswith("collectives."):
        return algorithm
    cost = algorithm.declared_cost
    return replace(
        algorithm,
        program=_bounded(algorithm.program),
        chunks_for=_bounded_function(algorithm.chunks_for, algorithm.name, "num_chunks"),
        scratch_for=_bounded_function(algorithm.scratch_for, algorithm.name, "scratch_chunks"),
        declared_cost=None if cost is None else _bounded_function(cost, algorithm.name, "cost"),
    )


def unbounded(algorithm: Algorithm) -> Algorithm:
    """Return *algorithm* with its author's own functions, which may take any time and memory."""
    cost = algorithm.declared_cost
    return replace(
        algorithm,
        program=_own(algorithm.program),
        chunks_for=_own(algorithm.chunks_for),
        scratch_for=_own(algorithm.scratch_for),
        declared_cost=None if cost is None else _own(cost),
    )


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, FunctionType) and function.__globals__ is globals():
        own: Callable[..., Any] = vars(function)["__wrapped__"]
        return own
    return function


@lru_cache(maxsize=64)
def _bounded(program: Program) -> Program:
    """Return *program* with every step within bounds; the same one for the same program."""

    @wraps(program, updated=())
    def bounded(rank: int, world_size: int, **parameters: Any) -> Iterator[Any]:
        most = MAX_STEPS + MAX_STEPS_PER_RANK * world_size
        steps = within(bounds.STEP_SECONDS, lambda: iterator_of(program(rank, world_size, **parameters)))
        for _ in range(most):
            step = within(bounds.STEP_SECONDS, next, steps, _END)
            if step is _END:
                return
            yield step
        raise OutOfBoundsError(f"it is still not done after {most} steps; does the program end?")

    return bounded


@lru_cache(maxsize=64)
def _bounded_function(function: Callable[..., Any], name: str, what: str) -> Callable[..., Any]:
    """Return *function*, which says *what* of the algorithm *name*, within bounds."""

    @wraps(function, updated=())
    def bounded(*args: Any, **parameters: Any) -> Any:
        try:
            return within(bounds.STEP_SECONDS, function, *args, **parameters)
        except CollectiveError:
            raise
        except Exception as error:
            raise ProgramError(f"{name}: {what} raised {type(error).__name__}: {error}") from error

    return bounded
