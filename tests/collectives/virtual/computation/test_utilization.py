"""Utilization of a GPU: what a hand counts of a multilayer perceptron."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from collectives.virtual import Roofline, run
from collectives.virtual.computation.totals import Totals
from sim.files.device_file import load_device

WIDTH, BATCH, LAYERS, STEPS = 64, 32, 3, 4
PRODUCT = 2 * BATCH * WIDTH * WIDTH
GPU = replace(load_device("h100"), kind="gpu")


def train(rank: int, evaluations: int = 0) -> None:
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(BATCH, WIDTH)
    for _ in range(STEPS):
        model(batch).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for _ in range(evaluations):
                model(batch)


@pytest.mark.parametrize("evaluations", [0, 2])
def test_model_flops_are_three_times_those_of_the_forward_pass(evaluations: int) -> None:
    report = run(lambda rank: train(rank, evaluations), 2, compute=Roofline(GPU)).report

    utilization, steady = report.utilization, report.steady()
    assert utilization is not None
    assert steady is not None
    assert utilization.model_flops == 3 * LAYERS * PRODUCT
    assert utilization.flops == (3 * LAYERS - 1 + LAYERS * evaluations) * PRODUCT  # the batch has no gradient
    assert utilization.dtype == "float32"
    ideal = utilization.model_flops / GPU.peaks["float32"]
    assert utilization.mfu == pytest.approx(ideal / steady.seconds)
    assert utilization.hfu == pytest.approx(utilization.mfu * utilization.flops / utilization.model_flops)


def test_without_a_gpu_nothing_is_said_of_its_utilization() -> None:
    report = run(train, 2, compute=Roofline("laptop-cpu")).report

    assert report.utilization is None
    assert "utilization" not in report.to_json()


def test_iterations_begin_again_where_a_script_says_where_they_end() -> None:
    totals = Totals()

    for finished in (1, 2, 1):
        totals.add(10, 0, "float32", "forward")
        totals.end_iteration(finished)

    assert [sum(flops.values()) for flops in totals.iterations] == [10]
