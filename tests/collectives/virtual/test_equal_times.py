"""Properties of virtual times: data change none, and neither does folding, whatever a script trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.setting import VirtualRun
from sim.files.device_file import load_device
from tests.collectives.virtual.training_scripts import TrainingScript, training_scripts

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

GPU = replace(load_device("h100"), kind="gpu")

FLAT_SHARDS = TrainingScript("fsdp1", 8, ("rms norm", "attention", "recurrent without bias"), 24)
"""Of the parameters of a flat one other pieces lie on each rank, those in the middle among them."""
OWN_SHARES = TrainingScript("zero", 4, ("perceptron", "layer norm"))
"""Each rank's optimizer has other parameters."""
UNEVEN_ROWS = TrainingScript("fsdp2", 8, ("attention",), 20)
"""Of some parameters ranks have two rows, one or none."""
TENSOR_PARALLEL = TrainingScript("tp", 4, ("perceptron", "layer norm"), extras=frozenset({"sequence"}))
KEPT_WHOLE = TrainingScript("fsdp1 grad op", 2, ("batch norm",), precision="policy")
"""FSDP1 looks at the memory of its flat parameter."""


def on_gpus(script: TrainingScript, **options: Any) -> VirtualRun:
    return run(script, script.ranks, "dgx-h100", compute=Roofline(GPU), **options)


def check_without_data(script: TrainingScript) -> None:
    """Check that *script* takes as long without data as with data."""
    with_data, without = on_gpus(script), on_gpus(script, fake=True, fold=False)

    assert without.times_ps == with_data.times_ps
    assert without.report.iterations == with_data.report.iterations


def check_folded(script: TrainingScript) -> None:
    """Check that *script* takes as long folded as with a thread for each rank."""
    folded, unfolded = (on_gpus(script, fake=True, fold=fold) for fold in (True, False))

    assert folded.times_ps == unfolded.times_ps
    assert folded.report.iterations == unfolded.report.iterations
    assert folded.report.ranks == unfolded.report.ranks


@pytest.mark.costly
@settings(max_examples=4, deadline=None)
@given(training_scripts((2, 4)))
@example(KEPT_WHOLE)
def test_a_script_takes_as_long_without_data_as_with_data(script: TrainingScript) -> None:
    check_without_data(script)


@pytest.mark.costly
@pytest.mark.timeout(400)
@settings(max_examples=2, deadline=None)
@given(training_scripts((4, 8)))
@example(FLAT_SHARDS)
@example(OWN_SHARES)
@example(UNEVEN_ROWS)
@example(TENSOR_PARALLEL)
def test_a_script_takes_as_long_folded_as_with_a_thread_for_each_rank(script: TrainingScript) -> None:
    check_folded(script)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=5, deadline=None)
@given(training_scripts((2, 4, 8)))
def test_many_scripts_take_as_long_without_data_as_with_data(script: TrainingScript) -> None:
    check_without_data(script)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=2, deadline=None)
@given(training_scripts((32, 64)))
def test_a_script_on_many_ranks_takes_as_long_folded(script: TrainingScript) -> None:
    check_folded(script)
