"""Attention on virtual GPUs: charged by the blocks that a mask leaves, and what it drops is drawn there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from collectives import NotSupportedError
from collectives.virtual import Roofline, run
from collectives.virtual.computation.cuda.attention import AttentionShape
from collectives.virtual.gpu import flexible_attention
from collectives.virtual.gpu.cpu_kernels import DroppingAttention
from collectives.virtual.streams.score import Launch
from sim import RankError
from tests.collectives.virtual.issued import issued_by, on_own_gpus
from tests.given import switch

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
_LENGTH, _HEADS, _HEAD, _BLOCK = 512, 4, 64, 128
_DOCUMENTS = torch.arange(_LENGTH) * 7 // (_LENGTH + 1) // 2  # of 147 and 146 positions, 3 and a rest


def _nothing_masked(b, h, q, k):
    return (q >= 0) & (k >= 0)


def _causal(b, h, q, k):
    return q >= k


def _window(b, h, q, k):
    return (q >= k) & (q - k < 100)


def _documents(device: str) -> Callable[..., Any]:
    numbers = _DOCUMENTS.to(device)
    return lambda b, h, q, k: (numbers[q] == numbers[k]) & (q >= k)


_MASKS: dict[str, Callable[[str], Callable[..., Any]]] = {
    "nothing masked": lambda _: _nothing_masked, "causal": lambda _: _causal,
    "a sliding window": lambda _: _window, "documents": _documents,
}  # fmt: skip


def _kernels(mask: Callable[[str], Callable[..., Any]], compiled: bool = True) -> list[tuple[str, int]]:
    """Return what attention and its backward pass launch, and how long each takes."""
    query = torch.randn(2, _HEADS, _LENGTH, _HEAD, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    key = torch.randn(2, _HEADS // 2, _LENGTH, _HEAD, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    blocks = create_block_mask(mask("cuda"), None, None, _LENGTH, _LENGTH, device="cuda")
    attend = torch.compile(flex_attention) if compiled else flex_attention
    issued = issued_by(lambda: attend(query, key, key, block_mask=blocks, enable_gqa=True).sum().backward())
    kernels = [item for item in issued if isinstance(item, Launch) and "flex" in item.name]
    return [(f"{item.name} {item.part}", item.duration_ps) for item in kernels]


@pytest.mark.parametrize("name", _MASKS)
def test_blocks_that_have_a_pair_to_be_seen_are_computed_with_data_and_without(name):
    mask = _MASKS[name]
    positions = torch.arange(_LENGTH)
    seen = mask("cpu")(None, None, positions[:, None], positions)
    tiles = seen.view(_LENGTH // _BLOCK, _BLOCK, -1, _BLOCK).any(3).any(1).sum(-1)
    found = on_own_gpus(lambda: _kernels(mask), strict=True)
    with_data = on_own_gpus(lambda: _kernels(mask), fake=False)

    shape = AttentionShape(
        2 * _HEADS, _LENGTH, _LENGTH, False, int(tiles.max()) * _BLOCK, _HEAD, _HEAD,
        computed=int(tiles.sum()) * _BLOCK**2,
    )  # fmt: skip
    device = Roofline("h100").device
    rates = device.attention["fa2"]
    work = max(shape.operations(), shape.longest_row() * (device.multiprocessors or 1))
    nbytes = (
        2 * 2 * _HEADS * _LENGTH * _HEAD * 3 + 4 * 2 * 2 * _HEADS * _LENGTH
    )  # of queries, keys and results
    forward = max(work / (device.peaks["bfloat16"] * rates.forward), nbytes / device.memory_bandwidth) * 1e12
    (name_forward, forward_ps), (name_backward, backward_ps) = found.results[0]
    assert (name_forward, name_backward) == ("flex_attention forward", "flex_attention_backward backward")
    assert forward_ps - device.launch_ps == pytest.approx(forward, abs=1)
    assert backward_ps > forward_ps
    assert with_data.results == found.results


def test_values_are_those_of_attention_with_the_mask():
    def gradient(device):
        torch.manual_seed(0)
        query, positions = torch.randn(1, 2, _LENGTH, 16).to(device).requires_grad_(), torch.arange(_LENGTH)
        if device == "cuda":
            blocks = create_block_mask(_documents(device), None, None, _LENGTH, _LENGTH, device=device)
            out = torch.compile(flex_attention)(query, query, query, block_mask=blocks)
        else:
            mask = _documents(device)(None, None, positions[:, None], positions)
            out = scaled_dot_product_attention(query, query, query, attn_mask=mask)
        out.square().sum().backward()
        return query.grad.cpu()

    torch.testing.assert_close(on_own_gpus(lambda: gradient("cuda"), fake=False).results[0], gradient("cpu"))


def _doubled(s, b, h, q, k):
    return s * 2


def _soft_capped(s, b, h, q, k):
    return 3 * torch.tanh(s / 3)


@pytest.mark.parametrize("score", [_doubled, _soft_capped])
def test_a_function_of_scores_has_the_gradients_of_dense_attention(score):
    given = [torch.randn(1, 2, 128, 16) for _ in range(3)]

    def flexible(*own):
        return flex_attention(*own, score_mod=score)

    def gradients(device, attention):
        own = [tensor.to(device).requires_grad_() for tensor in given]
        attention(*own).square().sum().backward()
        return [tensor.grad.cpu() for tensor in own]

    def dense(query, key, value):
        return torch.softmax(score(query @ key.mT / 4, 0, 0, 0, 0), -1) @ value

    found = on_own_gpus(lambda: gradients("cuda", flexible), fake=False)

    for own, expected in zip(found.results[0], gradients("cpu", dense), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)


def test_eager_it_is_products_of_all_pairs():
    assert not on_own_gpus(lambda: _kernels(_MASKS["causal"], compiled=False), strict=True).results[0]


def test_a_mask_of_very_many_pairs_is_looked_at_here_and_there(monkeypatch):
    whole = on_own_gpus(lambda: _kernels(_MASKS["causal"]))
    monkeypatch.setattr(flexible_attention, "_ALL_PAIRS", 1 << 12)

    sampled = on_own_gpus(lambda: _kernels(_MASKS["causal"]))

    assert sampled.results == whole.results
    assert any("looked at every 8 positions" in notice for notice in sampled.report.notices)


def test_a_mask_that_nobody_knows_is_named_and_refused_in_a_strict_run():
    def unknown(device):
        scores = torch.randn(_LENGTH, device=device)
        return lambda b, h, q, k: scores[q] > scores[k]

    known, found = (on_own_gpus(lambda own=own: _kernels(own)) for own in (_MASKS["nothing masked"], unknown))

    assert found.results == known.results
    assert any("flex_attention whose mask is not known" in notice for notice in found.report.notices)
    with pytest.raises(RankError, match=r"whose mask is not known.*no formula") as caught:
        on_own_gpus(lambda: _kernels(unknown), strict=True)
    assert isinstance(caught.value.__cause__, NotSupportedError)


def tensors(count: int) -> list[torch.Tensor]:
    options = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64, "requires_grad": True}
    return [torch.randn(2, 3, 6, 4, **options) for _ in range(count)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 36, dtype=torch.float64).view(6, 6)])
def test_nothing_dropped_is_torchs_attention(causal, bias):
    query, key, value = tensors(3)
    mask = bias
    if causal and bias is not None:
        mask = bias.masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), float("-inf"))

    output = DroppingAttention(0.0, causal, None, bias, 1).forward(query, key, value)

    expected = scaled_dot_product_attention(query, key, value, mask, is_causal=causal and bias is None)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_what_was_dropped(causal):
    query, key, value, grad = tensors(4)
    attention = DroppingAttention(0.3, causal, 0.7, None, 5)

    output = attention.forward(query, key, value)

    expected = torch.autograd.grad(output, (query, key, value), grad.detach())
    torch.testing.assert_close(attention.backward(grad.detach(), query, key, value), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compute", [None, Roofline("h100")], ids=["no model", "h100"])
def test_both_kernels_drop_by_the_generator_of_the_device(dtype, compute):
    def attend():
        query = torch.ones(1, 1, 16, 8, device="cuda", dtype=dtype)
        value = torch.ones(1, 1, 16, 8, device="cuda", dtype=dtype, requires_grad=True)
        output = scaled_dot_product_attention(query, query, value, dropout_p=0.5)
        output.sum().backward()
        return output.float().cpu(), value.grad.float().sum().item()

    def work(rank):
        torch.manual_seed(1)
        first, gradient = attend()
        second, _ = attend()
        torch.manual_seed(1)
        again, _ = attend()
        there = torch.equal(first, again), torch.equal(first, second)
        return *there, first.std().item() > 0, round(gradient - first.sum().item())

    assert run(work, network=switch(1), compute=compute).results == [(True, False, True, 0)]
