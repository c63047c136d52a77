"""State that Python and torch keep once for a process, in a module, a class or C++: each rank has its own.

What is listed here was found by comparing all modules of torch and of Python before a run and after it
(`tests/collectives/virtual/isolation/test_once_per_process.py` does so).  A rank begins with what the process
has; of hooks and other containers it gets a copy, since ranks add to them.  What a module has that a rank is
the first to import, such as that of FSDP1, each rank begins with as if it had imported it.

Attributes that a script adds to a class of torch, or replaces there, stay all ranks'.

Loggers stay the same objects, as modules hold on to them.  What ``logging.basicConfig``, ``setLevel`` or
``addHandler`` change on a rank's thread holds for that rank; so every rank that asks for it has a handler,
which writes to that rank's output.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.modules.module as modules
from torch.optim import Optimizer

from collectives.virtual.isolation.patching import Replacement, replaced
from sim.cluster import Cluster

_optimizers = sys.modules[Optimizer.__module__]

_ATTRIBUTES = (
    *(("builtins", name) for name in ("print", "input", "open", "breakpoint")),
    ("sys", "displayhook"),
    ("sys", "unraisablehook"),
    ("tempfile", "tempdir"),
    ("threading", "excepthook"),
    ("warnings", "formatwarning"),
    ("warnings", "showwarning"),
    ("torch.__future__", "_overwrite_module_params_on_conversion"),
    ("torch.__future__", "_swap_module_params_on_conversion"),
    ("torch._tensor_str", "PRINT_OPTS"),
    *(
        (module.__name__, name)
        for module in (modules, _optimizers)
        for name in vars(module)
        if name.startswith("_global_")
    ),
    ("torch.utils.checkpoint", "_checkpoint_debug_enabled"),
    ("torch.distributed.fsdp._debug_utils:SimpleProfiler", "profiling"),
    ("torch.distributed.fsdp._debug_utils:SimpleProfiler", "results"),
)
"""Attributes of modules, or after a colon of classes in them."""

_FLAGS = (
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"),
    ("_get_float32_matmul_precision", "_set_float32_matmul_precision"),
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_warnAlways", "_set_warnAlways"),
)
"""What returns and what sets a flag in C++, of ``torch._C``."""

_FLOAT32 = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
"""What float32 is computed in has a flag for, those before others that follow them."""


_core: Any = torch._C


class _Place(NamedTuple):
    """Where a value is: an attribute of an object."""

    owner: Any
    name: str


class OncePerProcess:
    """Attributes and flags that each rank has for itself: a `sim.cluster.RankContext`."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._missing = list(_ATTRIBUTES)
        self._flags = [*_flags()]
        self._outside: list[Any] = []
        self._outside_flags: list[Any] = []
        self._of_rank: dict[int, list[Any]] = {}
        self._flags_of_rank: dict[int, list[Any]] = {}

    def enter(self, rank: int) -> None:
        """Put *rank*'s values in place."""
        self._look_for_places()
        self._outside, self._outside_flags = self._found(), self._found_flags()
        self._put_rank(rank)

    def leave(self, rank: int) -> None:
        """Keep *rank*'s values, and put back what was there before."""
        self._keep(rank)
        self._put(self._outside, self._outside_flags)

    def switch(self, before: int, after: int) -> None:
        """Keep *before*'s values, and put *after*'s in place."""
        self._keep(before)
        self._put_rank(after)

    def _look_for_places(self) -> list[Any]:
        """Add the places in modules that have been imported meanwhile; return what is in them."""
        if not self._missing:
            return []
        found = {place: owner for place in self._missing if (owner := _owner(place[0])) is not None}
        self._missing = [place for place in self._missing if place not in found]
        new = [_Place(owner, name) for (_, name), owner in found.items() if hasattr(owner, name)]
        self._places += new
        return [getattr(*place) for place in new]

    def _found(self) -> list[Any]:
        return [getattr(owner, name) for owner, name in self._places]

    def _found_flags(self) -> list[Any]:
        return [get() for get, _ in self._flags]

    def _keep(self, rank: int) -> None:
        self._outside += [_emptied(value) for value in self._look_for_places()]
        self._of_rank[rank], self._flags_of_rank[rank] = self._found(), self._found_flags()

    def _put_rank(self, rank: int) -> None:
        own = self._of_rank.setdefault(rank, [])
        own += [_copied(value) for value in self._outside[len(own) :]]
        self._put(own, self._flags_of_rank.get(rank, self._outside_flags))

    def _put(self, values: list[Any], flags: list[Any]) -> None:
        for (owner, name), value in zip(self._places, values, strict=True):
            setattr(owner, name, value)
        for (get, put), flag in zip(self._flags, flags, strict=True):
            if get() != flag:
                put(flag)


def _flags() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    for get, put in _FLAGS:
        if hasattr(_core, get) and hasattr(_core, put):
            yield getattr(_core, get), getattr(_core, put)
    yield _allows_tf32_in_convolutions, _allow_tf32_in_convolutions
    for what in _FLOAT32:
        yield (
            partial(_core._get_fp32_precision_getter, *what),
            partial(_core._set_fp32_precision_setter, *what),
        )
    yield (
        lambda: (_core._get_deterministic_algorithms(), _core._get_deterministic_algorithms_warn_only()),
        lambda flag: _core._set_deterministic_algorithms(flag[0], warn_only=flag[1]),
    )
    yield (
        lambda: (_core.is_anomaly_enabled(), _core.is_anomaly_check_nan_enabled()),
        lambda flag: _core.set_anomaly_enabled(*flag),
    )


def _allows_tf32_in_convolutions() -> bool | None:
    """Return what the older of torch's switches says; None where the newer ones contradict it."""
    try:
        is_allowed: bool = _core._get_cudnn_allow_tf32()
        return is_allowed
    except RuntimeError:
        return None


def _allow_tf32_in_convolutions(is_allowed: bool | None) -> None:
    if is_allowed is not None:
        _core._set_cudnn_allow_tf32(is_allowed)


def _owner(place: str) -> Any:
    """Return the module, or the class in one, of that name; None if it has not been imported."""
    module, _, kind = place.partition(":")
    found = sys.modules.get(module)
    return getattr(found, kind, None) if kind else found


def _copied(value: Any) -> Any:
    """Return what a rank begins with where the process has *value*."""
    is_container = isinstance(value, dict | set | list) or type(value).__name__ == "__PrinterOptions"
    return copy.copy(value) if is_container else value


def _emptied(value: Any) -> Any:
    """Return what *value* was when its module was imported, if it is a container."""
    value = _copied(value)
    if isinstance(value, dict | set | list):
        value.clear()
    return value


_OF_LOGGERS = ("level", "handlers", "filters", "propagate", "disabled", "_cache")


@contextlib.contextmanager
def loggers_of_ranks() -> Iterator[None]:
    """Let each rank have the state of loggers for itself while the body runs."""
    replacements: list[Replacement] = [(logging.Logger, name, _PerRank(name)) for name in _OF_LOGGERS]
    replacements.append((logging.Manager, "_disable", _PerRank("_disable")))
    with replaced(replacements):
        try:
            yield
        finally:
            logging.root.manager._clear_cache()  # type: ignore[attr-defined]


class _PerRank:
    """Attribute *name* of objects: outside of ranks where it always is; a rank's own once it asked for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._of_rank: dict[int, WeakKeyDictionary[Any, Any]] = {}

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        own = self._own()
        if own is None:
            return self._outside(owner)
        if owner not in own:
            value = self._outside(owner)
            if not isinstance(value, list | dict):
                return value
            own[owner] = copy.copy(value)
        return own[owner]

    def __set__(self, owner: Any, value: Any) -> None:
        own = self._own()
        if own is None or self._name not in vars(owner):  # it is just being made
            vars(owner)[self._name] = value
        else:
            own[owner] = value

    def _own(self) -> WeakKeyDictionary[Any, Any] | None:
        rank_thread = Cluster.current()
        if rank_thread is None:
            return None
        return self._of_rank.setdefault(rank_thread.rank, WeakKeyDictionary())

    def _outside(self, owner: Any) -> Any:
        try:
            return vars(owner)[self._name]
        except KeyError:
            raise AttributeError(self._name, name=self._name, obj=owner) from None
