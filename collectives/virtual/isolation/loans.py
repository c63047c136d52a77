"""Loans: names that shared modules have borrowed from modules of which each rank has its own, per rank.

After a rank has imported modules, those that are shared are looked at (`borrowed`).  Every other rank then
imports, before it goes on, what they have borrowed, and finds its own objects in their places.  So it may
import more than it asked for, as if the module that borrows had been imported by this rank, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Mapping
from types import ModuleType

from collectives.virtual.isolation.borrowed import Borrowed, borrowed
from collectives.virtual.isolation.items import ItemsPerRank
from collectives.virtual.isolation.ownership import Ownership, can_copy

_MAIN = ("__main__", "__mp_main__")


class Loans:
    """What shared modules have borrowed from ranks' own.

    Args:
        modules: items of ``sys.modules`` that each rank has for itself.
        ownership: is told of modules that cannot be shared, as they build on own ones.
    """

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
        """Look at shared modules that are new, if there are any; return whether there were.

        Args:
            rank: which has run.
            num_own: how many of the modules in place are own ones.
        """
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
        """Import what shared modules have borrowed since *rank* last ran, whose modules are in place."""
        first = self._num_filled.get(rank, 0)
        if first == len(self._loans):
            return
        self._num_filled[rank] = len(self._loans)
        for lender, (borrower, name, source) in self._loans[first:]:
            if lender == rank:
                continue
            module = importlib.import_module(source.module)
            value = module if source.name is None else getattr(module, source.name)
            vars(borrower)[name] = value

    def settle(self) -> None:
        """Let shared modules, which stay in this process, have its own modules where ranks had theirs."""
        self._loans = [loan for loan in self._loans if can_copy(loan[1].borrower)]
        self._num_filled.pop(None, None)
        try:
            self.fill(None)
        except Exception:  # then others import them anew
            for _, loan in self._loans:
                if loan.name not in vars(loan.borrower):
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
