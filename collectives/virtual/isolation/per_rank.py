"""Values of the process that each rank thread has for itself: each is a `sim.cluster.RankContext`.

Code that believes itself alone in its process finds its own environment variables, random
generators, ``__main__``, and process groups, because these are swapped at every switch between
ranks.  While no rank runs, the process's own are in place.

What stays shared, because it cannot be swapped cheaply: modules that are not the script's own and their
globals, the working directory, signal handlers.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TextIO, TypeAlias

import numpy as np
import torch
import torch.distributed.distributed_c10d as c10d
import torch.utils._python_dispatch as dispatch
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.isolation import context_parallel
from sim.topology import Topology

Streams: TypeAlias = tuple[TextIO, TextIO]
"""Standard output and standard error."""


class PerRank:
    """Values that are got and set at places of the process, one value for each rank."""

    def __init__(
        self,
        ranks: Sequence[int],
        get: Callable[[], Any],
        put: Callable[[Any], Any],
        first: Callable[[int], Any],
    ) -> None:
        self.values = {rank: first(rank) for rank in ranks}
        self._get, self._put = get, put
        self._outside: Any = None

    def enter(self, rank: int) -> None:
        """Put *rank*'s value in place."""
        self._outside = self._get()
        self._put(self.values[rank])

    def leave(self, rank: int) -> None:
        """Keep *rank*'s value, and put back what was there before."""
        self.values[rank] = self._get()
        self._put(self._outside)

    def switch(self, before: int, after: int) -> None:
        """Keep *before*'s value, and put *after*'s in place."""
        self.values[before] = self._get()
        self._put(self.values[after])


def attribute(ranks: Sequence[int], owner: Any, name: str, first: Callable[[int], Any]) -> PerRank:
    """Return the attribute *name* of *owner*, per rank."""
    return PerRank(ranks, lambda: getattr(owner, name), lambda value: setattr(owner, name, value), first)


def item(
    ranks: Sequence[int], owner: MutableMapping[str, Any], key: str, first: Callable[[int], Any]
) -> PerRank:
    """Return the item *key* of *owner*, per rank."""
    return PerRank(ranks, lambda: owner[key], lambda value: owner.__setitem__(key, value), first)


def streams(ranks: Sequence[int], streams_of: Callable[[int], Streams]) -> list[PerRank]:
    """Return standard output and error, per rank."""
    pairs = {rank: streams_of(rank) for rank in ranks}
    return [
        attribute(ranks, sys, "stdout", lambda rank: pairs[rank][0]),
        attribute(ranks, sys, "stderr", lambda rank: pairs[rank][1]),
    ]


def environment(ranks: Sequence[int], variables: Callable[[int], Mapping[str, str]]) -> PerRank:
    """Return the environment variables, per rank: those of the process, changed by *variables*.

    What ``CUDA_VISIBLE_DEVICES`` says is of this machine's GPUs, so ranks begin without it.

    ``os.environ`` and ``os.environb`` stay the same objects, as modules hold on to them; what is in them
    changes.
    """
    encode: Callable[[str], Any] = os.environ.encodekey

    def first(rank: int) -> dict[Any, Any]:
        own = {encode(name): encode(value) for name, value in variables(rank).items()}
        inherited: dict[Any, Any] = {**os.environ._data, **own}  # type: ignore[attr-defined]
        inherited.pop(encode("CUDA_VISIBLE_DEVICES"), None)
        return inherited

    views: tuple[Any, Any] = (os.environ, os.environb)

    def put(values: dict[Any, Any]) -> None:
        for view in views:
            view._data = values

    return PerRank(ranks, lambda: views[0]._data, put, first)


def forget_environment(environment: PerRank) -> None:
    """Undo, for code in C, what ranks have set: it sees one environment, which each rank changed."""
    own: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
    for name in {name for values in environment.values.values() for name in values} - own.keys():
        os.unsetenv(name)
    for name, value in own.items():
        os.putenv(name, value)


def random_generators(ranks: Sequence[int]) -> list[PerRank]:
    """Return the process's random generators, per rank.

    In a new process they begin anywhere; here with the rank as their seed, so that a run repeats,
    and a script that forgets to seed gets other numbers on each rank, as it would in processes.
    """
    return [
        PerRank(
            ranks,
            torch.get_rng_state,
            torch.set_rng_state,
            lambda rank: torch.Generator().manual_seed(rank).get_state(),
        ),
        PerRank(ranks, random.getstate, random.setstate, lambda rank: random.Random(rank).getstate()),
        PerRank(
            ranks,
            lambda: np.random.get_state(legacy=False),
            np.random.set_state,
            lambda rank: np.random.RandomState(rank).get_state(legacy=False),
        ),
    ]


def torch_globals(ranks: Sequence[int]) -> list[PerRank]:
    """Return what torch keeps for the process, per rank: its process groups above all.

    And what it changes while a rank may wait: the hook for exceptions, and filters of warnings,
    which ``catch_warnings`` of several ranks would put back in the wrong order.
    """
    firsts: dict[str, Callable[[int], Any]] = {
        "_world": lambda rank: c10d._World(),
        "_pg_map": lambda rank: {},
        "_pg_names": lambda rank: {},
        "_pg_group_ranks": lambda rank: {},
        "_pg_backend_config": lambda rank: {},
        "_group_count": lambda rank: 0,
        "_tags_to_pg": lambda rank: {},
        "_pg_to_tag": lambda rank: {},
        "_backend": lambda rank: None,
        "_default_pg_init_method": lambda rank: None,
    }
    dtype = torch.get_default_dtype()

    return [
        *(attribute(ranks, c10d, name, first) for name, first in firsts.items() if hasattr(c10d, name)),
        attribute(ranks, DistributedDataParallel, "_active_ddp_module", lambda rank: None),
        attribute(ranks, sys, "excepthook", lambda rank: sys.excepthook),  # torch wraps it
        attribute(ranks, warnings, "filters", lambda rank: list(warnings.filters)),
        PerRank(ranks, torch.get_default_dtype, torch.set_default_dtype, lambda rank: dtype),
        PerRank(ranks, _get_mode_flags, _set_mode_flags, lambda rank: {}),
        PerRank(ranks, _get_handlers, _set_handlers, lambda rank: None),
        PerRank(ranks, _get_tracker, _set_tracker, lambda rank: None),
        PerRank(ranks, context_parallel.get, context_parallel.put, lambda rank: None),
    ]


def _dtensor_dispatcher() -> Any:
    """Return what finds operations of DTensors, or None where nobody has imported them, which takes long."""
    module = sys.modules.get("torch.distributed.tensor._api")
    return module and getattr(getattr(module, "DTensor", None), "_op_dispatcher", None)


def _get_handlers() -> dict[Any, Any] | None:
    """Return the operations that DTensors handle themselves: ``loss_parallel`` adds some while it lasts."""
    return getattr(_dtensor_dispatcher(), "_custom_op_handlers", None)


def _set_handlers(handlers: dict[Any, Any] | None) -> None:
    dispatcher = _dtensor_dispatcher()
    if dispatcher is None:
        return
    if handlers is None:
        loss = sys.modules.get("torch.distributed.tensor.parallel.loss")
        of_loss = loss.customized_loss_ops if loss else {}
        others = {*of_loss, *context_parallel.operations()}
        handlers = {op: fn for op, fn in dispatcher._custom_op_handlers.items() if op not in others}
    dispatcher._custom_op_handlers = handlers


_TRACKER = "_rng_tracker"


def _get_tracker() -> Any:
    """Return what tracks random numbers of DTensors: it is of one rank's device, made when it first draws."""
    return getattr(sys.modules.get("torch.distributed.tensor._random"), _TRACKER, None)


def _set_tracker(tracker: Any) -> None:
    module = sys.modules.get("torch.distributed.tensor._random")
    if hasattr(module, _TRACKER):
        setattr(module, _TRACKER, tracker)


_MODE_FLAGS = [
    name for name in vars(dispatch) if name.startswith("_is_in_") and name.endswith(("_mode", "internals"))
]


def _get_mode_flags() -> dict[str, bool]:
    """Return what torch notes for the process of dispatch modes, which belong to threads."""
    return {name: getattr(dispatch, name) for name in _MODE_FLAGS}


def _set_mode_flags(flags: Mapping[str, bool]) -> None:
    for name in _MODE_FLAGS:
        setattr(dispatch, name, flags.get(name, False))
    tell_dynamo = getattr(dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
    if tell_dynamo is not None:
        tell_dynamo(flags.get("_is_in_any_mode_without_ignore_compile_internals", False))


def variables_of(rank: int, topology: Topology) -> dict[str, str]:
    """Return the variables that ``torchrun`` sets for *rank* of a cluster with one agent on each node."""
    num_ranks, ranks_per_node = topology.num_ranks, topology.ranks_per_node
    node, local_rank = divmod(rank, ranks_per_node)
    values = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": num_ranks,
        "LOCAL_WORLD_SIZE": min(ranks_per_node, num_ranks - node * ranks_per_node),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-num_ranks // ranks_per_node),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": num_ranks,
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": 29500,
        "OMP_NUM_THREADS": 1,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
    }
    return {name: str(value) for name, value in values.items()}
