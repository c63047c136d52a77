"""Parameter use in forward passes, announced by hooks before the modules that own the parameters.

A module may use parameters of a module that it never calls (``nn.MultiheadAttention`` does).  So a
parameter that was not announced in every forward pass so far counts as needed when a pass begins; in the
first pass all do.  What is used directly after it has always been announced is not seen; nor is a
parameter that a pass uses before it calls the module that owns it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from ddp.autograd.backward_pass import remove_handles


class ParameterUse:
    """Announces the parameters of *module* that are in *parameters*.

    Args:
        module: what is trained.
        parameters: by name; their indices count in this order.
        tell: is given the index of a parameter before it is used.  Its owner is not kept alive.
    """

    def __init__(
        self, module: nn.Module, parameters: Mapping[str, nn.Parameter], tell: Callable[[int], None]
    ) -> None:
        index_of = {id(parameter): index for index, parameter in enumerate(parameters.values())}
        self._all = frozenset(index_of.values())
        self._always = frozenset[int]()
        self._num_passes = 0
        self._announced: set[int] = set()
        self._tell = weakref.WeakMethod(tell)
        handles = []
        for part in module.modules():
            own = [index_of[id(p)] for p in part.parameters(recurse=False) if id(p) in index_of]
            if own:
                handles.append(part.register_forward_pre_hook(_Announce(weakref.ref(self), own)))
        weakref.finalize(self, remove_handles, handles)

    def begin(self) -> list[int]:
        """Take note of a forward pass; return what it may use without a word."""
        self._announced.clear()
        return sorted(self._all - self._always)

    def end(self) -> None:
        """Take note of the end of the pass."""
        first = self._num_passes == 0
        self._always = frozenset(self._announced) if first else self._always & self._announced
        self._num_passes += 1

    def announce(self, indices: Sequence[int]) -> None:
        """Tell of the parameters *indices*."""
        tell = self._tell()
        for index in indices:
            self._announced.add(index)
            if tell is not None:
                tell(index)


class _Announce:
    """A hook that announces parameters; copied or pickled with a module, it does nothing."""

    def __init__(self, use: weakref.ref[ParameterUse] | None = None, own: Sequence[int] = ()) -> None:
        self.use = use
        self.own = own

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Announce."""
        living = None if self.use is None else self.use()
        if living is not None:
            living.announce(self.own)

    def __reduce__(self) -> tuple[type[_Announce], tuple[()]]:
        return _Announce, ()
