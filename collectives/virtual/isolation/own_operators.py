"""Operators that ranks register with torch, which keeps them once for a process: each rank calls its own.

A script, or a package of which each rank has a copy, registers its operators on every rank, as each process
would; torch refuses the second.  Here an operator is defined by the first rank, and a kernel that torch calls
is that of the rank that calls it: of the first, where that rank has registered none.  Of decompositions, fake
implementations and rules for modes, which are to say the same on every rank, the last stands for all.
After a run torch forgets what its ranks' own modules have registered; modules that ranks share stay.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch._library import custom_ops, simple_registry
from torch._library.utils import RegistrationHandle

from collectives.virtual.isolation.patching import on_ranks, replaced
from sim.cluster import RankThread, current_rank_thread

_core: Any = torch._C
_REGISTERING = ("torch.library", "torch._library", on_ranks.__module__, __name__)
"""Modules through which others register."""


class OwnOperators:
    """What the ranks of a run have registered.

    Attributes:
        definers: of each operator, its schema by the rank that has it.
        kernels: of each operator and dispatch key, the kernel of each rank.
        namespaces: of each, the library by which each rank defines it.
        left: libraries that their rank has no longer, of which others still use something.
    """

    def __init__(self) -> None:
        self.definers: dict[str, dict[int, str]] = {}
        self.kernels: dict[tuple[str, str], dict[int, Callable[..., Any]]] = {}
        self.namespaces: dict[str, dict[int, _Library]] = {}
        self.left: list[_Library] = []
        self._made: list[_Library] = []
        self._libraries: dict[tuple[int, str], Any] = {}
        self._decomposed: dict[Any, int] = {}
        self._dispatch_library = _core._dispatch_library
        self._get_library = custom_ops.get_library_allowing_overwrite
        self._add_decomposition: Callable[..., None] = torch._decomp._add_op_to_registry

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        """Let ranks register operators while the body runs."""
        holder = simple_registry.GenericTorchDispatchRuleHolder
        replacements = [
            (_core, "_dispatch_library", on_ranks(self._dispatch_library, self._library)),
            (custom_ops, "get_library_allowing_overwrite", on_ranks(self._get_library, self._of_custom_op)),
            (torch._decomp, "_add_op_to_registry", on_ranks(self._add_decomposition, self._decomposition)),
            (holder, "register", on_ranks(holder.register, _put_rule)),
        ]
        with replaced(replacements):
            try:
                yield
            finally:
                for library in [own for own in self._made if own.is_of_a_rank()]:
                    library.reset()

    def _library(self, rank_thread: RankThread, kind: str, namespace: str, *place: Any) -> _Library:
        rank = rank_thread.rank
        definers = self.namespaces.setdefault(namespace, {})
        is_fragment = kind == "DEF" and definers and rank not in definers
        registered = self._dispatch_library("FRAGMENT" if is_fragment else kind, namespace, *place)
        library = _Library(self, rank, namespace, registered, _globals_of_caller())
        if kind == "DEF":
            definers[rank] = library
        self._made.append(library)
        return library

    def _of_custom_op(self, rank_thread: RankThread, namespace: str, name: str) -> Any:
        """Return a library for an operator that the rank defines, anew where it has defined it before."""
        rank, called = rank_thread.rank, f"{namespace}::{name}"
        before = self._libraries.pop((rank, called), None)
        if before is not None:
            before._destroy()
        if not self.definers.get(called):
            library = self._get_library(namespace, name)
        else:
            library = torch.library.Library(namespace, "FRAGMENT")
        self._libraries[rank, called] = library
        return library

    def _decomposition(self, rank_thread: RankThread, registry: Any, op: Any, function: Any) -> None:
        """Add a decomposition, in the place of what another rank has added."""
        rank = rank_thread.rank
        is_packet = isinstance(op, torch._ops.OpOverloadPacket)
        for overload in [getattr(op, name) for name in op.overloads()] if is_packet else [op]:
            if self._decomposed.setdefault(overload, rank) != rank:
                registry.pop(overload, None)
        self._add_decomposition(registry, op, function)

    def reset_unused(self) -> None:
        """Take back from torch what is no longer any rank's."""
        for library in [own for own in self.left if not own.is_used()]:
            self.left.remove(library)
            library.forget()


class _Library:
    """What a `torch.library.Library` of a rank registers with, in the place of ``torch._C``'s."""

    def __init__(
        self, operators: OwnOperators, rank: int, namespace: str, library: Any, made_in: dict[str, Any]
    ) -> None:
        self._operators, self._rank, self._made_in = operators, rank, made_in
        self._namespace, self._library = namespace, library
        self._defined: set[str] = set()
        self._shared: set[str] = set()
        self._registered: set[tuple[str, str]] = set()
        self._kernels: set[tuple[str, str]] = set()

    def define(self, schema: str, *options: Any) -> Any:
        name = schema.split("(")[0]
        called = self._called(name)
        definers = self._operators.definers.setdefault(called, {})
        if self._rank in definers or schema not in definers.values():
            name = self._library.define(schema, *options)
            self._defined.add(called)
        self._shared.add(called)
        definers[self._rank] = schema
        return name

    def impl(self, name: str, key: str, kernel: Callable[..., Any], with_keyset: bool = False) -> None:
        place = self._called(name), key
        kernels = self._operators.kernels.setdefault(place, {})
        if not kernels:
            passed = kernel is torch.library.fallthrough_kernel
            self._library.impl(name, key, kernel if passed else partial(_call, kernels), with_keyset)
            self._registered.add(place)
        kernels[self._rank] = kernel
        self._kernels.add(place)

    def reset(self) -> None:
        """Take back what the rank has registered; what others have, too, stays until they do."""
        for called in self._shared:
            self._operators.definers[called].pop(self._rank, None)
        for place in self._kernels:
            self._operators.kernels[place].pop(self._rank, None)
        self._shared, self._kernels = set(), set()
        definers = self._operators.namespaces[self._namespace]
        if definers.get(self._rank) is self:
            del definers[self._rank]
        if self not in self._operators.left:
            self._operators.left.append(self)
        self._operators.reset_unused()

    def is_used(self) -> bool:
        """Return whether a rank has what this registered first."""
        operators = self._operators
        return any(operators.definers[called] for called in self._defined) or any(
            operators.kernels[place] for place in self._registered
        )

    def is_of_a_rank(self) -> bool:
        """Return whether the module that made it is a rank's own: no other has its name after a run."""
        module = sys.modules.get(self._made_in.get("__name__", ""))
        return module is None or vars(module) is not self._made_in

    def forget(self) -> None:
        """Let torch forget it, and what ``torch.ops`` keeps of it, which would no longer be there."""
        self._library.reset()
        for called in self._defined:
            namespace, name = called.partition(".")[0].split("::")
            kept: Any = getattr(torch.ops, namespace)
            vars(kept).pop(name, None)
            if name in kept._dir:
                kept._dir.remove(name)
        self._defined, self._registered = set(), set()

    def _called(self, name: str) -> str:
        return name if "::" in name else f"{self._namespace}::{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def _globals_of_caller() -> dict[str, Any]:
    """Return the globals of the module that registers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_REGISTERING):
        frame = frame.f_back
    return {} if frame is None else frame.f_globals


def _call(kernels: dict[int, Callable[..., Any]], *args: Any, **options: Any) -> Any:
    """Call the kernel of the rank whose thread this is, or that of the first."""
    rank_thread = current_rank_thread()
    kernel = None if rank_thread is None else kernels.get(rank_thread.rank)
    return (kernel or next(iter(kernels.values())))(*args, **options)


def _put_rule(_: RankThread, holder: Any, kind: type, rule: Callable[..., Any]) -> RegistrationHandle:
    """Set what an operator does under a mode, or of a subclass of tensors, which all ranks may do."""
    holder._data[kind] = rule
    return RegistrationHandle(lambda: holder._data.pop(kind, None))
