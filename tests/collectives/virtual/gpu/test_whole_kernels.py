"""Operations that are one kernel on CUDA, and that the CPU's build composes of others."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.virtual.gpu.stock.cuda_only import COMPOSED, WHOLE
from tests.collectives.virtual.clusters import on_gpus

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "_fused_rms_norm": lambda x: nn.functional.rms_norm(x, (8,), torch.full((8,), 2.0, device=x.device)),
    "mish_backward": nn.functional.mish,
    "silu_backward": nn.functional.silu,
}


def test_every_operation_with_a_derivative_that_torch_composes_is_known_to_be_whole_or_composed():
    """Their derivatives are generated from torch's table, which lists what has a kernel somewhere."""
    composed = re.compile(r"^CompositeImplicitAutograd\[alias\]: registered", re.MULTILINE)
    derived = re.compile(r"^Autograd\[alias\]: registered at \S*VariableType", re.MULTILINE)
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        dump = torch._C._dispatch_dump(name) if name.startswith("aten::") else ""
        if composed.search(dump) and derived.search(dump):
            found.add(name.removeprefix("aten::").split(".")[0])

    assert found <= {func.overloadpacket.__name__ for func in WHOLE} | set(COMPOSED)
    assert {func.overloadpacket.__name__ for func in WHOLE} == set(CALLS)


class _Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten" and not func.is_view and "detach" not in func.name():
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", list(CALLS))
def test_it_is_taken_whole_on_a_device_and_has_the_values_of_its_parts(name):
    values = {}

    def script(rank):
        for device in ("cpu", "cuda"):
            torch.manual_seed(0)
            x = torch.randn(4, 8).to(device).requires_grad_()
            with _Seen() as seen:
                y = CALLS[name](x)
                y.backward(torch.linspace(0, 1, 32, device=device).view(4, 8))
            values[device] = seen.names, y.detach().cpu(), x.grad.cpu()

    on_gpus(script, 1)

    names, output, gradient = values["cuda"]
    assert name in names
    assert len(names) <= 5  # with what makes the arguments
    torch.testing.assert_close((output, gradient), values["cpu"][1:])
