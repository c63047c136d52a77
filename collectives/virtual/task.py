"""Task of the ranks of a run: a function of the rank, or a script."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.torch_backend.script import Module, Script
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.gpu.virtual_cuda import VirtualCuda
from collectives.virtual.isolation import per_rank
from collectives.virtual.isolation.own_modules import OwnModules
from collectives.virtual.isolation.ownership import Ownership
from collectives.virtual.isolation.shared_state import SharedState
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, RankContext

FunctionOrScript = Callable[[int], Any] | Module | str | os.PathLike[str]


class Globals(dict[str, Any]):
    """The globals that a script has left; when nobody holds these any more, what holds a graph is dropped.

    A loss that is left in them has a graph, the graph may hold a module (FSDP2's does), the module its class,
    the class its functions, and they their globals: a ring through autograd, which no garbage collector sees.
    """

    def __init__(self, left: dict[str, Any], variables: dict[str, Any]) -> None:
        super().__init__(left)
        graphs_dropped_after(self, variables)


def graphs_dropped_after(owner: object, variables: dict[str, Any]) -> None:
    """Drop what holds a graph from the *variables* of a script when *owner* is gone.

    The rest stays: who has kept a model alone can call it.
    """

    def drop() -> None:
        for name in [name for name, value in variables.items() if _holds_graph(value)]:
            del variables[name]

    weakref.finalize(owner, drop).atexit = False


def _holds_graph(value: Any) -> bool:
    """Return whether *value*, a list or dictionary of it, or an attribute of it is a tensor with a graph."""
    attributes = None if isinstance(value, (ModuleType, type)) else getattr(value, "__dict__", None)
    return any(tensor.grad_fn is not None for tensor in tensors_in((value, attributes)))


@dataclass(frozen=True)
class Task:
    """What every rank runs.

    Attributes:
        run: does it, given the rank, on the rank's thread.
        contexts: what each rank has of its own for it.
        around: entered before the first rank begins, and left after the last.
        kept: says what shared packages keep of one rank, for a run that fails.
        globals: of a script, those of each rank.
    """

    run: Callable[[int], Any]
    contexts: Sequence[RankContext]
    around: AbstractContextManager[None]
    kept: Callable[[], Sequence[str]] = tuple
    globals: Sequence[dict[str, Any]] = ()

    @classmethod
    def of(
        cls,
        fn_or_script: FunctionOrScript,
        argv: Sequence[str],
        ranks: Sequence[int],
        devices: VirtualCuda,
        own: Sequence[str] = (),
        *,
        looks: bool = True,
    ) -> Task:
        """Return the task that calls a function, or runs a script as if each rank were a process of its own.

        Raises:
            NotSupportedError: one of *own* cannot be copied.
            OSError, ModuleNotFoundError, SyntaxError: the script cannot be read, or is no Python.
        """
        if callable(fn_or_script):
            devices.read_module_of(fn_or_script)
            own_modules = OwnModules(Ownership(None, own), sys.path, devices.read)
            return cls(fn_or_script, (own_modules,), own_modules.found())

        named = fn_or_script if isinstance(fn_or_script, Module) else Path(fn_or_script)
        script = Script(named, argv)
        if script.text is not None:
            devices.read(script.text)
        devices.read(" ".join(argv))
        module = named.name if isinstance(named, Module) else None
        return cls._of_script(script, ranks, devices, Ownership(script.folder, own, module), looks)

    @classmethod
    def _of_script(
        cls, script: Script, ranks: Sequence[int], devices: VirtualCuda, ownership: Ownership, looks: bool
    ) -> Task:
        mains = {rank: ModuleType("__main__") for rank in ranks}
        search_path, first = script.search_path(), min(ranks)
        own_modules = OwnModules(ownership, search_path, devices.read)

        state = SharedState(own_modules.shared, len(ranks))

        def run(rank: int) -> dict[str, Any]:
            here = Cluster.current()
            if here is not None and rank == first and looks:
                Iterations.of(here.cluster).on_end(lambda *_: state.iteration_ended())
            result = script.run(mains[rank], devices.read if rank == first else None)
            if looks:
                state.rank_ended()
            return result

        contexts: list[RankContext] = [
            per_rank.item(ranks, sys.modules, "__main__", lambda rank: mains[rank]),
            per_rank.attribute(ranks, sys, "argv", lambda rank: list(script.argv)),
            per_rank.attribute(ranks, sys, "path", lambda rank: list(search_path)),
            own_modules,
        ]
        namespaces = [main.__dict__ for main in mains.values()]
        return cls(run, contexts, own_modules.found(), state.texts if looks else tuple, namespaces)
