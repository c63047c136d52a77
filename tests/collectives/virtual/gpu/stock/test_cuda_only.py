"""Operations that torch has for CUDA alone: their values are those of layers that the CPU has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim.files.device_file import load_device


def on_gpu(script: Any, fake: bool) -> Any:
    from dataclasses import replace

    return run(
        script, 1, "dgx-h100", compute=Roofline(replace(load_device("h100"), kind="gpu")), fake=fake
    ).results[0]


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_gives_what_it_gives_on_the_cpu(kind: str) -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = getattr(nn, kind)(3, 4, num_layers=2).to(device)
        inputs = torch.randn(5, 2, 3)
        layer(inputs.to(device))[0].square().sum().backward()
        return [parameter.grad.cpu() for parameter in layer.parameters()]

    found = on_gpu(lambda rank: gradients("cuda"), fake=False)

    for own, expected in zip(found, gradients("cpu"), strict=True):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_without_data_a_recurrent_layer_has_its_shapes(kind: str) -> None:
    def shapes(rank: int) -> list[torch.Size]:
        layer = getattr(nn, kind)(3, 4).cuda()
        outputs, _ = layer(torch.randn(5, 2, 3, device="cuda"))
        outputs.sum().backward()
        return [outputs.shape, *(parameter.grad.shape for parameter in layer.parameters())]

    rows = {"LSTM": 16, "GRU": 12}[kind]

    assert on_gpu(shapes, fake=True) == [(5, 2, 4), (rows, 3), (rows, 4), (rows,), (rows,)]
