"""State that a package keeps of one rank for all of them: found in its modules, and given as a notice.

Packages that ranks share are looked at when an iteration first ends, when the first and the last rank do, and
where a run fails, whose error then says what was found.
Noticed are process groups and device meshes, and numbers of a rank by their usual names, where a module holds
them: in a variable, a class, an attribute of a function, an object of the package's own, or a container in
one of these.  A number counts from 1 on, since 0 is what many have before they are told, and only where it
has been set: not as a default of a class.  What else a package may keep of a rank is not seen, and
`KNOW_NO_RANKS` are not looked at.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from collectives.virtual.isolation.texts_of_packages import KNOW_NO_RANKS
from collectives.virtual.notices import Notices
from sim.cluster import Cluster

TEXT = "a package that all ranks share keeps what one of them has; --own NAME gives each rank a copy of it"

_KINDS = ((ProcessGroup, "a process group"), (DeviceMesh, "a device mesh"))
_RANKS = frozenset(
    ("rank", "_rank", "local_rank", "_local_rank", "global_rank", "process_index", "local_process_index")
)
_DEPTH = 3
_MANY = 1000
"""Containers with more items than this are tables of something else."""


class SharedState:
    """Looks for state of one rank in modules that ranks share."""

    def __init__(self, modules: Callable[[], Iterable[ModuleType]], num_ranks: int) -> None:
        self._modules = modules
        self._num_ranks = num_ranks
        self._named: set[str] = set()
        self._num_iterations = 0
        self._num_ended = 0

    def iteration_ended(self) -> None:
        """Look, if it is the first of the run; on a rank's thread, like `rank_ended`."""
        self._num_iterations += 1
        if self._num_iterations == 1:
            self._look()

    def rank_ended(self) -> None:
        """Look, if it is the first or the last rank."""
        self._num_ended += 1
        if self._num_ended in (1, self._num_ranks):
            self._look()

    def texts(self) -> list[str]:
        """Return in a text what packages keep of one rank, if anything."""
        kept = found(self._modules(), self._num_ranks) if self._num_ranks > 1 else {}
        items = ", ".join(f"{package} ({what})" for package, what in kept.items())
        return [f"{TEXT}: {items}"] if items else []

    def _look(self) -> None:
        here = Cluster.current()
        if self._num_ranks == 1 or here is None:
            return
        for package, what in found(self._modules(), self._num_ranks).items():
            if package not in self._named:
                self._named.add(package)
                Notices.of(here.cluster).add(TEXT, f"{package} ({what})")


def found(modules: Iterable[ModuleType], num_ranks: int) -> dict[str, str]:
    """Return what packages keep of one rank: by name, the first thing that is found, and where."""
    modules = [module for module in modules if _package(module) not in KNOW_NO_RANKS]
    search = _Search({module.__name__ for module in modules}, num_ranks)
    kept: dict[str, str] = {}
    for module in modules:
        package = _package(module)
        if package not in kept:
            for what in search.in_module(module):
                kept[package] = what
                break
    return kept


def _package(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


class _Search:
    def __init__(self, names: set[str], num_ranks: int) -> None:
        self._names = names
        self._num_ranks = num_ranks
        self._seen: set[int] = set()

    def in_module(self, module: ModuleType) -> Iterator[str]:
        """Yield what a module keeps of one rank, and where."""
        for name, value in list(vars(module).items()):
            place = f"{module.__name__}.{name}"
            if name in _RANKS and self._is_rank(value) and _rebinds(module, name):
                yield f"a rank in {place}"
            yield from self._in(value, place, _DEPTH)

    def _in(self, value: Any, place: str, depth: int) -> Iterator[str]:
        kind = type(value)
        for wanted, what in _KINDS:
            if issubclass(kind, wanted):
                yield f"{what} in {place}"
                return
        if not depth or id(value) in self._seen:
            return
        items = self._items(value, kind)
        if items:
            self._seen.add(id(value))
        for name, inner in items:
            where = f"{place}.{name}"
            if name in _RANKS and not issubclass(kind, type) and self._is_rank(inner):
                yield f"a rank in {where}"
            yield from self._in(inner, where, depth - 1)

    def _items(self, value: Any, kind: type) -> list[tuple[Any, Any]]:
        """Return what is in *value*, with names."""
        if kind is dict:
            return list(value.items()) if len(value) <= _MANY else []
        if kind in (list, tuple, set):
            return list(enumerate(value)) if len(value) <= _MANY else []
        if kind is FunctionType:
            return list(value.__dict__.items())
        if issubclass(kind, type):
            return list(vars(value).items()) if self._is_shared(value) else []
        return list(_attributes(value).items()) if self._is_shared(kind) else []

    def _is_shared(self, kind: type) -> bool:
        return vars(kind).get("__module__") in self._names

    def _is_rank(self, value: Any) -> bool:
        return type(value) is int and 0 < value < self._num_ranks


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of *value*, without asking it, as it may answer by doing something."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def _rebinds(module: ModuleType, name: str) -> bool:
    """Return whether a function of *module* sets its variable *name*."""
    functions = [value for value in vars(module).values() if type(value) is FunctionType]
    return any(
        step.opname == "STORE_GLOBAL" and step.argval == name
        for function in functions
        if function.__module__ == module.__name__
        for step in dis.get_instructions(function)
    )
