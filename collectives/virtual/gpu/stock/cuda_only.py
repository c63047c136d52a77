"""Operations that torch has for CUDA alone, by their formulas, from which shapes follow, and values.

Torch has cuDNN's LSTM and GRU where it is built with it.  A build without takes a fused kernel for each
step, as torch does on a device for sequences that cuDNN does not take; so more launches are counted than
there would be.

A number that C++ reads below all modes, as `torch.tensor([loss, 1.0])` does, comes to a kernel of CUDA, too.
The one here lets Python in again, which C++ keeps out of what it calls then, so that the number is read as
``item()`` reads it: at its time, and with the notices of a run without data.

Source: torch, csrc/utils/tensor_new.cpp (``internal_new_from_data``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch._meta_registrations as shapes
from torch import Tensor
from torch._decomp import decomposition_table

from collectives.virtual.gpu import recurrent_cells
from collectives.virtual.gpu.attention import attention
from collectives.virtual.gpu.batch_norm import FORMULAS
from collectives.virtual.isolation.patching import Replacement

_libraries: list[torch.library.Library] = []


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own, which looks at biases that a recurrent cell may be without."""
    name = "rnn_cell_checkSizes"
    if hasattr(shapes, name):
        yield shapes, name, _with_biases(getattr(shapes, name))


def _with_biases(check: Callable[..., None]) -> Callable[..., None]:
    """Return *check*, of the sizes of a cell, with biases that are as they should be where there are none."""

    def checked(gates: Any, hidden_gates: Any, input_bias: Any, hidden_bias: Any, *rest: Any) -> None:
        if input_bias is None:
            width = gates.size(1)
            input_bias = SimpleNamespace(ndim=1, numel=lambda: width, shape=(width,), device=gates.device)
            hidden_bias = input_bias
        check(gates, hidden_gates, input_bias, hidden_bias, *rest)

    return checked


def register() -> None:
    """Let these operations be known from now on, for tensors that are not real, and attention be chosen.

    A registration stays, as torch keeps what others have derived from it.
    """
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("aten", "IMPL")
    for operation, formula in KERNELS.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "Meta"):
            library.impl(operation, formula, "Meta")
    for operation in WHOLE:
        library.impl(operation, _not_reached, "CUDA")
    library.impl("_local_scalar_dense", _number, "CUDA")
    for key in ("AutogradCUDA", "CUDA"):
        library.impl("scaled_dot_product_attention", attention, key)
    _libraries.append(library)


def _not_reached(*args: Any, **kwargs: Any) -> Any:
    """Stand for a kernel of CUDA, which modes that carry out operations on virtual tensors come before."""
    raise NotImplementedError("there is no CUDA here")


_KEPT_OUT = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)


def _number(tensor: Tensor) -> Any:
    with _python_let_in():
        return torch.ops.aten._local_scalar_dense.default(tensor)


@contextlib.contextmanager
def _python_let_in() -> Iterator[None]:
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in _KEPT_OUT]
    try:
        for key in _KEPT_OUT:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        yield
    finally:
        for key, was_kept_out in zip(_KEPT_OUT, before, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_kept_out)


KERNELS: Mapping[Any, Callable[..., Any]] = {
    **{getattr(torch.ops.aten, name).default: formula for name, formula in FORMULAS.items()},
    torch.ops.aten._fused_rms_norm_backward.default: decomposition_table[
        torch.ops.aten._fused_rms_norm_backward.default
    ],
    torch.ops.aten._thnn_fused_gru_cell.default: recurrent_cells.gru,
    torch.ops.aten._thnn_fused_gru_cell_backward.default: recurrent_cells.gru_backward,
}
"""Formulas by operation."""

WHOLE = (
    torch.ops.aten._fused_rms_norm.default,
    torch.ops.aten.mish_backward.default,
    torch.ops.aten.silu_backward.default,
)
"""Operations that are one kernel on CUDA, and for which a build without has but what they are composed of: it
would compose them before anyone sees them, and keep all that is in between.  With a kernel for CUDA in its
place torch takes them whole, and their derivatives, as it does on a device.  The other operations that torch
composes, though they have derivatives, are composed on CUDA, too (``COMPOSED``)."""

COMPOSED = (
    "chunk",
    "linear",
    "matmul",
    "max_pool2d",
    "narrow",
    "native_channel_shuffle",
    "value_selecting_reduction_backward",
)
"""Names of those others."""
