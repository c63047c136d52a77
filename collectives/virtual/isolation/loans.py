"""Loans: names that shared modules have borrowed from modules of which each rank has its own, per rank.

``from accelerate import Accelerator`` in a shared module binds the class of the rank that happened to
import it.  Such a name of the module has to be each rank's own, too.  Where more than a name was taken, as
by a class that derives from one of these, the module *builds* on them, and cannot be shared at all; nor can
one of which a rank's own module has replaced a function or class, as each rank replaces the first one.

After a rank has imported modules, those that are shared are looked at.  Every other rank then imports, before
it goes on, what they have borrowed, and finds its own objects in their places.  So it may import more than it
asked for, as if the module that borrows had been imported by this rank, too.
"""

from __future__ import annotations

import dis
import functools
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from collectives.virtual.isolation.items import ItemsPerRank
from collectives.virtual.isolation.ownership import Ownership, can_copy

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
        """Return whether *module* holds what is lent in another way than by a name that it has imported."""
        names = [(name, value) for name, value in list(vars(module).items()) if not _is_special(name)]
        if any(id(value) not in self._sources and self._is_inside(value, module) for name, value in names):
            return True
        lent = {name for name, value in names if id(value) in self._sources}
        return bool(lent) and not lent.isdisjoint(_has_defined(module))

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


def _has_defined(module: ModuleType) -> set[str]:
    """Return of which names *module*, as it is written, defines functions or classes and imports none."""
    read = getattr(getattr(module.__spec__, "loader", None), "get_code", None)
    try:
        code = read and read(module.__name__)
    except (ImportError, OSError, SyntaxError, ValueError):  # its file has changed since, or is gone
        return set()
    if code is None:
        return set()
    defined = {const.co_name for const in code.co_consts if isinstance(const, CodeType)}
    return defined.difference(
        step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_FROM"
    )


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


_MAIN = ("__main__", "__mp_main__")


class Loans:
    """What shared modules have borrowed from ranks' own."""

    def __init__(self, modules: ItemsPerRank, ownership: Ownership) -> None:
        self._modules, self._ownership = modules, ownership
        self._names: dict[int, ItemsPerRank] = {}
        self._loans: list[tuple[int | None, Borrowed]] = []
        self._num_filled: dict[int | None, int] = {}
        self._seen: set[str] = set(_MAIN)
        self._num_seen = -1
        self._growing: dict[str, int] = {}

    def begin(self, hidden: Collection[str]) -> None:
        """Look what this process's modules have borrowed from those that ranks are not to find, *hidden*."""
        if hidden:
            self._look(None, {name: sys.modules[name] for name in hidden})
        else:
            self._seen.update(sys.modules)
            self._note_size()

    def look(self, rank: int, num_own: int) -> bool:
        """Look at shared modules that are new, if there are any; return whether there were."""
        if len(sys.modules) - num_own == self._num_seen and not any(
            len(vars(sys.modules[name])) != size
            for name, size in self._growing.items()
            if name in sys.modules and name not in self._modules
        ):
            return False

        self._look(rank, self._modules.mine())
        return True

    def keep(self, rank: int | None) -> None:
        """Keep what is in place as that of *rank*, None: of nobody."""
        for names in self._names.values():
            names.keep(rank)

    def put(self, rank: int | None) -> None:
        """Put *rank*'s objects in place."""
        for names in self._names.values():
            names.put(rank)

    def fill(self, rank: int | None) -> None:
        """Import what shared modules have borrowed since *rank* last ran, whose modules are in place.

        A rank goes on without what it cannot import, or has no such name, as a process would that never asks.
        """
        first = self._num_filled.get(rank, 0)
        if first == len(self._loans):
            return
        self._num_filled[rank] = len(self._loans)
        for lender, (borrower, name, source) in self._loans[first:]:
            if lender == rank:
                continue
            with suppress(Exception):
                module = importlib.import_module(source.module)
                vars(borrower)[name] = module if source.name is None else getattr(module, source.name)

    def settle(self) -> None:
        """Let shared modules, which stay in this process, have its own modules where ranks had theirs."""
        self._loans = [loan for loan in self._loans if can_copy(loan[1].borrower)]
        self._num_filled.pop(None, None)
        self.fill(None)
        for _, loan in self._loans:
            if loan.name not in vars(loan.borrower):  # then others import it anew
                sys.modules.pop(loan.borrower.__name__, None)

    def _look(self, rank: int | None, own: Mapping[str, ModuleType]) -> None:
        fresh = self._fresh()
        own = {name: module for name, module in own.items() if isinstance(module, ModuleType)}
        if own:
            self._note(rank, fresh, own)
        self._note_size()

    def _note_size(self) -> None:
        self._num_seen = len(sys.modules) - len(self._modules.mine())

    def _fresh(self) -> list[ModuleType]:
        """Return shared modules that nobody has looked at, and packages that may have changed since."""
        fresh: dict[str, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            if name in self._seen or name in self._modules or not isinstance(module, ModuleType):
                continue
            if getattr(module.__spec__, "_initializing", False):
                continue
            self._seen.add(name)
            fresh[name] = module
            package = name.rpartition(".")[0]  # has the module as an attribute
            if isinstance(sys.modules.get(package), ModuleType) and package not in self._modules:
                fresh[package] = sys.modules[package]
            if type(module) is not ModuleType:  # keeps what it is asked for
                self._growing[name] = 0

        for name in self._growing.keys() & sys.modules.keys():
            fresh[name] = sys.modules[name]
            self._growing[name] = len(vars(sys.modules[name]))
        return list(fresh.values())

    def _note(self, rank: int | None, fresh: list[ModuleType], own: dict[str, ModuleType]) -> None:
        findings = borrowed(fresh, own, can_copy)
        for module in findings.builders:
            self._ownership.add(module.__name__)
            self._modules.add(module.__name__)
            self._growing.pop(module.__name__, None)
        for loan in findings.names:
            borrower = loan.borrower
            names = self._names.get(id(borrower))
            if names is None:
                names = ItemsPerRank(vars(borrower), are_absent=can_copy(borrower))
                self._names[id(borrower)] = names
            if loan.name not in names:
                names.add(loan.name)
                self._loans.append((rank, loan))
