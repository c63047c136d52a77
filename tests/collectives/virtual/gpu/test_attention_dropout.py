"""Attention that drops weights: gradients of what was dropped, and drawn by the device's generator."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from collectives.virtual import Roofline, run
from collectives.virtual.gpu.cpu_kernels import DroppingAttention
from tests.given import switch


def tensors(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = 2, 3, 6, 4
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(count)
    ]


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
