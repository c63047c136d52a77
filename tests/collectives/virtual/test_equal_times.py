"""Properties of virtual times: data change none, and neither does folding, whatever a script trains."""

import pytest
import torch
from hypothesis import example, given, settings

from collectives.virtual.report import VirtualReport
from collectives.virtual.spent import CAUSES, IN_COMPUTATION
from tests.collectives.virtual.clusters import check_folded, on_gpus
from tests.collectives.virtual.group_calls.every_collective import every_collective
from tests.collectives.virtual.stock_scripts import STOCK_SCRIPTS, StockScript
from tests.collectives.virtual.training_scripts import TrainingScript, training_scripts

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

FLAT_SHARDS = TrainingScript("fsdp1", 8, ("rms norm", "attention", "recurrent without bias"), 24)
"""Of the parameters of a flat one other pieces lie on each rank, those in the middle among them."""
OWN_SHARES = TrainingScript("zero", 4, ("perceptron", "layer norm"))
"""Each rank's optimizer has other parameters."""
UNEVEN_ROWS = TrainingScript("fsdp2", 8, ("attention",), 20)
"""Of some parameters ranks have two rows, one or none."""
TENSOR_PARALLEL = TrainingScript("tp", 4, ("perceptron", "layer norm"), extras=frozenset({"sequence"}))
KEPT_WHOLE = TrainingScript("fsdp1 grad op", 2, ("batch norm",), precision="policy")
"""FSDP1 looks at the memory of its flat parameter."""
NORMS = ("encoder", "layer norm", "group norm", "rms norm")
SHORT = ("ddp", "fsdp2", "1f1b", "our ddp", "copied")
IN_SIXTEEN_BITS = {
    system: TrainingScript(system, 2, NORMS, optimizer="fused", precision="policy", steps=3)
    for system in ("fsdp1", "fsdp2")
}
"""Kernels of CUDA take types together that those of the CPU refuse."""


def check_all_is_lost_to_something(report: VirtualReport) -> None:
    """Check that what an iteration is lost to makes up all that is not computation alone."""
    for iteration, lost in zip(report.iterations, report.lost, strict=True):
        seconds = {own.cause: own.seconds for own in lost}
        longer = sum(seconds[cause] for cause in IN_COMPUTATION)

        assert list(seconds) == list(CAUSES)
        assert min(seconds.values()) >= 0
        assert sum(seconds.values()) - longer == pytest.approx(iteration[0].exposed_seconds, abs=1e-11)
        assert longer <= iteration[0].compute_seconds


def check_without_data(script: TrainingScript | StockScript) -> None:
    """Check that *script* takes as long without data as with data."""
    with_data, without = (on_gpus(script, script.ranks, fake=fake, fold=False) for fake in (False, True))

    assert without.times_ps == with_data.times_ps
    assert without.report.iterations == with_data.report.iterations
    assert without.report.lost == with_data.report.lost
    check_all_is_lost_to_something(without.report)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.costly) for name in STOCK_SCRIPTS]
)
def test_a_stock_script_takes_as_long_without_data_as_with_data(name):
    check_without_data(STOCK_SCRIPTS[name])


@pytest.mark.costly
@pytest.mark.timeout(900)
@settings(max_examples=max(4, settings.default.max_examples // 10))
@given(training_scripts((2, 4)))
@example(KEPT_WHOLE)
@example(IN_SIXTEEN_BITS["fsdp1"])
@example(IN_SIXTEEN_BITS["fsdp2"])
@example(StockScript(lambda: every_collective(torch.cuda.current_device(), "cuda"), 3))
def test_a_script_takes_as_long_without_data_as_with_data(script):
    check_without_data(script)


@pytest.mark.costly
@pytest.mark.timeout(400)
@settings(max_examples=2)
@given(training_scripts((4, 8)))
@example(FLAT_SHARDS)
@example(OWN_SHARES)
@example(UNEVEN_ROWS)
@example(TENSOR_PARALLEL)
def test_a_script_takes_as_long_folded_as_with_a_thread_for_each_rank(script):
    check_folded(script, script.ranks, fake=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=2)
@given(training_scripts((32, 64)))
def test_a_script_on_many_ranks_takes_as_long_folded(script):
    check_folded(script, script.ranks, fake=True)
