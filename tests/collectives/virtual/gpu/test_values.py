"""Values that virtual CUDA devices compute: those of the CPU, in the same time as if there were none."""

import copy
import io
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.virtual import run
from collectives.virtual.gpu.cpu_kernels import in_one_type
from collectives.virtual.gpu.stock.cuda_only import COMPOSED, WHOLE
from tests.collectives.virtual.clusters import on_gpus
from tests.collectives.virtual.stock_scripts import layers

Tensors = list[torch.Tensor]


def drawn(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device).requires_grad_()


def gradients(module: nn.Module) -> Tensors:
    return [parameter.grad for parameter in module.parameters()]


def accuracy(device: str) -> Tensors:
    scores, labels = drawn(device, 64, 10), torch.randint(0, 10, (64,)).to(device)
    return [nn.functional.cross_entropy(scores, labels), (scores.argmax(1) == labels).float().sum()]


def picture_classifier(device: str) -> Tensors:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(drawn(device, 4, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    return [model(torch.ones(1, 3, 8, 8, device=device)), model[1].running_var]


def recurrent(device: str, kind: str = "LSTM", layers: int = 2, **options) -> Tensors:
    model = getattr(nn, kind)(8, 16, layers, **options).to(device)
    output, _ = model(drawn(device, 4, 5, 8))
    output.square().sum().backward()
    return [output, *gradients(model)]


def log_sigmoid(device: str) -> Tensors:
    scores = drawn(device, 64, 10)
    nn.functional.logsigmoid(scores).sum().backward()
    return [scores.grad]


def masked_attention(device: str) -> Tensors:
    query, mask = drawn(device, 2, 4, 16, 32), torch.ones(16, 16, dtype=torch.bool, device=device).tril()
    scaled_dot_product_attention(query, query, query, attn_mask=mask).sum().backward()
    return [query.grad]


def attention_with_a_bias_that_is_trained(device: str) -> Tensors:
    made = [drawn(device, *shape) for shape in [(2, 3, 8, 8)] * 3 + [(1, 3, 8, 8)]]
    attended = scaled_dot_product_attention(*made[:3], attn_mask=made[3])
    (attended * torch.arange(8, device=device)).sum().backward()
    return [tensor.grad for tensor in made]


def flexible_attention(device: str) -> Tensors:
    query = drawn(device, 1, 2, 16, 16).detach()
    return [flex_attention(query, query, query)]


def layer_under_autocast(device: str) -> Tensors:
    """Train a layer in sixteen bits, with attention behind it."""
    model = nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs, losses = drawn(device, 32, 64).detach(), []
    for _ in range(3):
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden = model(inputs).view(4, 8, 4, 16).transpose(1, 2)
        loss = scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return losses


def scaled_half_precision(device: str) -> Tensors:
    model = nn.Linear(32, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(device, init_scale=128.0)
    for _ in range(2):
        with torch.autocast(device, dtype=torch.float16):
            loss = model(torch.ones(16, 32, device=device)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 128
    return [model.weight]


def pipeline_of_data(device: str) -> Tensors:
    data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64))
    total = torch.zeros((), device=device)
    for inputs, labels in torch.utils.data.DataLoader(data, 16, shuffle=True, pin_memory=device == "cuda"):
        total += inputs.to(device, non_blocking=True).sum() + labels.to(device).sum()
    return [total]


def saved_and_loaded(device: str) -> Tensors:
    model, other = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, map_location=device))
    return [other.weight]


def conjugate_views(device: str) -> Tensors:
    pairs, angles = drawn(device, 4, 3, 2), torch.polar(torch.ones(3), torch.arange(3.0)).to(device)
    turned = torch.view_as_complex(pairs) * angles
    (torch.view_as_real(turned).cumsum(0) * turned.detach().conj().imag[..., None]).sum().backward()
    return [pairs.grad]


SCRIPTS = {
    "gated": partial(recurrent, kind="GRU", batch_first=True),
    "recurrent without bias": partial(recurrent, layers=1, bias=False),
    **{script.__name__.replace("_", " "): script for script in (
        accuracy, picture_classifier, recurrent, log_sigmoid, masked_attention,
        attention_with_a_bias_that_is_trained, flexible_attention, layer_under_autocast,
        scaled_half_precision, pipeline_of_data, saved_and_loaded, conjugate_views,
    )},
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
def test_values_are_those_of_the_cpu_and_change_no_time(script):
    def values(rank, device="cuda"):
        torch.manual_seed(0)
        return [(tensor.detach().cpu(), tensor.sum().item()) for tensor in SCRIPTS[script](device)]

    modelled, without_data, instant = on_gpus(values, 1), on_gpus(values, 1, fake=True), run(values, 1)

    with torch.random.fork_rng():
        expected = values(0, "cpu")
    for found in (modelled, instant):
        for (own, _), (other, _) in zip(found.results[0], expected, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)
    assert without_data.times_ps == modelled.times_ps
    assert all(math.isnan(total) for _, total in without_data.results[0])


@pytest.mark.parametrize("layer", [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.RMSNorm(8)])
def test_a_normalization_layer_in_bfloat16_has_the_gradients_of_one_in_float32(layer):
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))

    def trained(device, dtype):
        given, own = inputs.detach().to(device, dtype).requires_grad_(), copy.deepcopy(layer)
        own.to(device, dtype)(given).float().pow(3).sum().backward()
        return [gradient.float().cpu() for gradient in (given.grad, *gradients(own))]

    found = on_gpus(lambda rank: trained("cuda", torch.bfloat16), 1).results[0]

    torch.testing.assert_close(found, trained("cpu", torch.float32), rtol=0.15, atol=0.5)


def test_a_batch_norm_in_bfloat16_keeps_its_statistics_in_float32():
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(0)).bfloat16()

    def trained(device, dtype):
        layer = nn.BatchNorm1d(8).to(device)
        layer.weight.data, layer.bias.data = layer.weight.data.to(dtype), layer.bias.data.to(dtype)
        output = layer(inputs.to(device, dtype))
        assert output.dtype is dtype
        return [output.float().cpu(), layer.running_mean.cpu(), layer.running_var.cpu()]

    found = on_gpus(lambda rank: trained("cuda", torch.bfloat16), 1).results[0]

    torch.testing.assert_close(found, trained("cpu", torch.float32), rtol=0.02, atol=0.02)


def test_what_a_gpu_refuses_in_two_types_is_refused_with_data():
    arguments = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bfloat16)

    assert in_one_type(torch.ops.aten.mm.default, arguments, {}) is NotImplemented


def test_where_only_cudnn_is_allowed_attention_is_a_fused_kernel():
    def work(rank):
        query = torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = scaled_dot_product_attention(query, query, query, is_causal=True)
        return out.isnan().any().item(), out.grad_fn.name()

    assert run(work, 1).results == [(False, "ScaledDotProductFlashAttentionBackward0")]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_a_full_state_on_the_cpu_has_the_values_of_the_model():
    def script(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        model = layers()
        whole = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
        sharded = FullyShardedDataParallel(model)
        kept = FullStateDictConfig(offload_to_cpu=True)
        with FullyShardedDataParallel.state_dict_type(sharded, StateDictType.FULL_STATE_DICT, kept):
            return whole, sharded.state_dict()

    whole, full = on_gpus(script, 2).results[0]

    assert {tensor.device.type for tensor in full.values()} == {"cpu"}
    assert all((full[name].numpy() == tensor.numpy()).all() for name, tensor in whole.items())


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
