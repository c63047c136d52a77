"""Kernels that a script launches by Triton, on a rank's virtual GPU.

Without data a launch is charged as one kernel of that name that reads and writes the tensors that it is given
once, whatever its grid; what it computes is not known, so reports count it among operations that are charged
by their bytes alone.  Of configurations to choose from it takes the first.  With data it is refused by name:
Triton compiles for GPUs alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from collectives.errors import NotSupportedError
from collectives.virtual.computation.compiled import fused
from collectives.virtual.isolation.patching import on_ranks, replaced
from sim.cluster import RankThread

_LAUNCHES, _CHOICES = "triton.runtime.jit", "triton.runtime.autotuner"


@torch.library.custom_op("collective_testbed::triton_kernel", mutates_args={"tensors"})
def _kernel(tensors: Sequence[Tensor]) -> None:
    """Read and write *tensors*."""


@_kernel.register_fake
def _(tensors: Sequence[Tensor]) -> None: ...


@contextlib.contextmanager
def launches_of_triton(*, has_data: bool) -> Iterator[None]:
    """Let ranks launch kernels of Triton, whether it has been imported or will be, while the body runs."""
    with contextlib.ExitStack() as stack:

        def prepare(module: ModuleType) -> None:
            run: Callable[..., Any]
            if module.__name__ == _LAUNCHES:
                kind, run = module.JITFunction, _refuse if has_data else _launch
            else:
                kind, run = module.Autotuner, _choose
            stack.enter_context(replaced([(kind, "run", on_ranks(kind.run, run))]))

        for name in (_LAUNCHES, _CHOICES):
            if name in sys.modules:
                prepare(sys.modules[name])
        finder: Any = _Finder(prepare)
        sys.meta_path.insert(0, finder)
        stack.callback(sys.meta_path.remove, finder)
        yield


class _Finder:
    """Finder of the two modules of Triton that launch kernels, each of which is prepared when imported."""

    def __init__(self, prepare: Callable[[ModuleType], None]) -> None:
        self._prepare = prepare

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where such a module is; None for any other."""
        spec = PathFinder.find_spec(name, path, target) if name in (_LAUNCHES, _CHOICES) else None
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                self._prepare(module)

            loader.exec_module = executed
        return spec


def _launch(_: RankThread, kernel: Any, *args: Any, **options: Any) -> None:
    with fused(kernel.fn.__name__):
        _kernel([own for own in (*args, *options.values()) if isinstance(own, Tensor)])


def _refuse(_: RankThread, kernel: Any, *args: Any, **options: Any) -> None:
    name = kernel.fn.__name__
    raise NotSupportedError(
        f"the kernel {name} of Triton is compiled for GPUs alone, and there is none here: run the script "
        "without data (--fake), or let it compute the same by torch's operations, in "
        f'testbed.fused("{name}")'
    )


def _choose(_: RankThread, tuner: Any, *args: Any, **options: Any) -> Any:
    return tuner.fn.run(*args, **options, **tuner.configs[0].all_kwargs())
