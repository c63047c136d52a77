"""Operations that torch has for CUDA alone, by their formulas, from which shapes follow, and values.

Torch has cuDNN's LSTM and GRU where it is built with it.  A build without takes a fused kernel for each
step, as torch does on a device for sequences that cuDNN does not take; so more launches are counted than
there would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch._meta_registrations as shapes

from collectives.virtual.gpu import recurrent_cells
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
    """Let shapes of these operations be known from now on; a registration stays."""
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("aten", "IMPL")
    for operation, formula in KERNELS.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "Meta"):
            library.impl(operation, formula, "Meta")
    _libraries.append(library)


KERNELS: Mapping[Any, Callable[..., Any]] = {
    **{getattr(torch.ops.aten, name).default: formula for name, formula in FORMULAS.items()},
    torch.ops.aten._thnn_fused_gru_cell.default: recurrent_cells.gru,
    torch.ops.aten._thnn_fused_gru_cell_backward.default: recurrent_cells.gru_backward,
}
"""Formulas by operation."""
