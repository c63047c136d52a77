"""Borrowing: what modules that ranks share have taken from modules of which each rank has its own.

``from accelerate import Accelerator`` in a shared module binds the class of the rank that happened to
import it.  Such a name of the module has to be each rank's own, too.  Where more than a name was taken, as
by a class that derives from one of these, the module *builds* on them, and cannot be shared at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

_CONTAINERS = (dict, list, tuple, set, frozenset)
_Cached = type(functools.cache(len))
_MANY = 1000
"""Containers of a module that have more items than this are tables of something else."""


class Source(NamedTuple):
    """Where a borrowed object comes from: a module, and its name in it; None: the module itself."""

    module: str
    name: str | None


class Borrowed(NamedTuple):
    """A name of a shared module, and where each rank finds what it stands for."""

    borrower: ModuleType
    name: str
    source: Source


@dataclass
class Findings:
    """What modules have borrowed.

    Attributes:
        names: which may be each rank's own.
        builders: modules that cannot be shared.
    """

    names: list[Borrowed] = field(default_factory=list)
    builders: list[ModuleType] = field(default_factory=list)


def borrowed(
    shared: Iterable[ModuleType], own: Mapping[str, ModuleType], can_copy: Callable[[ModuleType], bool]
) -> Findings:
    """Return what *shared* modules have taken from *own* ones, directly or from each other.

    Args:
        shared: modules that all ranks have in common.
        own: those of the rank that has imported these, by name.
        can_copy: says of a module whether each rank could have it for itself; others never count as builders.
    """
    shared, own, findings = list(shared), dict(own), Findings()
    packages: set[str] = set()  # with builders: the rest of such a package may use these while it is imported
    while True:
        lender = _Lender(own)
        builders = [
            module
            for module in shared
            if can_copy(module)
            and (lender.builds(module) or (_top(module) in packages and any(lender.names(module))))
        ]
        if not builders:
            break
        packages.update(map(_top, builders))
        findings.builders += builders
        own.update((module.__name__, module) for module in builders)
        shared = [module for module in shared if module not in builders]
    for module in shared:
        findings.names += [
            Borrowed(module, name, source)
            for name, source in lender.names(module)
            if can_copy(module) or type(vars(module)[name]) not in _CONTAINERS  # which are rather lent by it
        ]
    return findings


class _Lender:
    """Modules of one rank, and what comes from them."""

    def __init__(self, own: Mapping[str, ModuleType]) -> None:
        self._own = own
        self._globals = {id(vars(module)) for module in own.values()}
        self._sources: dict[int, Source] = {}
        for name, module in own.items():
            for attribute, value in list(vars(module).items()):
                is_first = _home_of(value) == name or id(value) not in self._sources
                if is_first and (self._lent(value) or type(value) in _CONTAINERS):
                    self._sources[id(value)] = Source(name, attribute)
        self._sources |= {id(module): Source(name, None) for name, module in own.items()}

    def names(self, module: ModuleType) -> Iterator[tuple[str, Source]]:
        """Yield the names of *module* that stand for what is lent, and for what."""
        for name, value in list(vars(module).items()):
            source = self._sources.get(id(value))
            if source is not None and not _is_special(name):
                yield name, source

    def builds(self, module: ModuleType) -> bool:
        """Return whether *module* holds what is lent in another way than by a name."""
        return any(
            self._is_inside(value, module)
            for name, value in list(vars(module).items())
            if id(value) not in self._sources and not _is_special(name)
        )

    def _is_inside(self, value: Any, module: ModuleType) -> bool:
        kind = type(value)  # as isinstance asks the value for its class, which may answer by doing something
        if self._lent(value):
            return True
        if issubclass(kind, type) and _module_of(value) == module.__name__:
            members = map(_function_of, vars(value).values())
            return any(self._lent(member) or self._is_held_by(member) for member in members)
        if kind in _CONTAINERS and len(value) <= _MANY:
            return any(map(self._lent, value.values() if kind is dict else value))
        return self._is_held_by(_function_of(value))

    def _is_held_by(self, function: Any) -> bool:
        """Return whether something lent is a default of *function*, or was decorated into it."""
        if type(function) is not FunctionType:
            return False
        held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            try:
                held.append(cell.cell_contents)
            except ValueError:  # not filled yet
                continue
        return any(map(self._lent, held))

    def _lent(self, value: Any) -> bool:
        """Return whether *value* belongs to one of the rank's own modules."""
        value = _function_of(value)
        kind = type(value)
        if issubclass(kind, ModuleType):
            return self._own.get(vars(value).get("__name__", "")) is value
        if kind is FunctionType:
            return id(value.__globals__) in self._globals or str(value.__module__) in self._own
        if issubclass(kind, type):
            return any(_module_of(base) in self._own for base in type.mro(value))
        return _module_of(kind) in self._own


def _top(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


def _function_of(value: Any) -> Any:
    """Return the function inside of a method, a property and the like; *value* itself if it is none."""
    kind = type(value)
    if kind in (staticmethod, classmethod, MethodType):
        return value.__func__
    if kind is property:
        return value.fget
    if kind is functools.partial:
        return value.func
    if kind is _Cached:
        return value.__wrapped__
    return value


def _home_of(value: Any) -> str:
    """Return in which module a class or function was written, if *value* is one."""
    if type(value) is FunctionType:
        return str(value.__module__)
    return _module_of(value) if issubclass(type(value), type) else ""


def _module_of(kind: type) -> str:
    return str(vars(kind).get("__module__", ""))


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
