"""Mixed precision: low-precision computation and reduction, full-precision parameters.

Torch's ``_MixedPrecision(param_dtype, reduce_dtype, buffer_dtype)``, on any device.  The forward
pass runs on casts of the parameters, which are part of the graph.  So gradients are computed in
``param_dtype`` and arrive cast back, in full precision; buckets are summed in ``reduce_dtype`` (by
default ``param_dtype``) and divided there, as torch does.

Better than torch: parameters and accumulated gradients keep full precision at all times, so an
evaluation without a backward pass leaves nothing behind in low precision.  The price: a checkpoint
that runs parts of the forward pass again meets the full-precision parameters; it refuses.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.distributed.utils import _cast_forward_inputs
from torch.func import functional_call

from ddp.buckets.comm_hooks import Hook


class MixedPrecision:
    """Runs a module in the dtypes of a ``_MixedPrecision``.

    Args:
        config: torch's ``_MixedPrecision``.
        module: to run; its buffers are cast here, for good.
        ignored: names of parameters and buffers that keep their dtype.
    """

    def __init__(self, config: Any, module: nn.Module, ignored: Collection[str]) -> None:
        self._param_dtype: torch.dtype | None = config.param_dtype
        self.reduce_dtype: torch.dtype | None = config.reduce_dtype or config.param_dtype
        self._ignored = ignored
        if self._param_dtype is not None:
            for name, parameter in module.named_parameters():
                if name not in ignored and parameter.is_floating_point():
                    _stand_for_both(parameter, self._param_dtype)
        if config.buffer_dtype is not None:
            for name, buffer in module.named_buffers():
                if name not in ignored and buffer.is_floating_point():
                    buffer.data = buffer.to(config.buffer_dtype)

    def run(self, module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the module's output, computed with parameters and inputs of ``param_dtype``."""
        if self._param_dtype is None:
            return module(*inputs, **kwargs)
        inputs, kwargs = _cast_forward_inputs(self._param_dtype, *inputs, **kwargs)
        low = {
            name: parameter.to(self._param_dtype)
            for name, parameter in module.named_parameters()
            if parameter.is_floating_point() and name not in self._ignored
        }
        return functional_call(module, low, inputs, kwargs)

    def hook(self, group: Any) -> Hook | None:
        """Return the communication hook that sums and divides in ``reduce_dtype``, if that is set."""
        dtype = self.reduce_dtype
        if dtype is None:
            return None

        def average_in_reduce_dtype(state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
            low = bucket.buffer().to(dtype)
            work = torch.distributed.all_reduce(low, group=group, async_op=True)
            assert work is not None

            def divide(future: Any) -> torch.Tensor:
                future.wait()
                average: torch.Tensor = low.div_(group.size())
                return average

            averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(divide)
            return averaged

        return average_in_reduce_dtype


def _stand_for_both(parameter: Any, dtype: torch.dtype) -> None:
    """Give *parameter* the attributes that torch's class gives it: its values in full and in low precision.

    That in low precision has a shape and no memory, as torch's has outside of a forward pass.
    """
    parameter._fp_param = parameter.detach()
    parameter._mp_param = torch.empty_like(parameter, dtype=dtype, device="meta")
