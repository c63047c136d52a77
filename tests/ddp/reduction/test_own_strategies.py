"""Strategies in users' files: FILE.py:CLASS wherever a strategy is named."""

from pathlib import Path

import pytest
import torch

from collectives.errors import AlgorithmFileError
from ddp import DistributedDataParallel, load_profile, simulate_step
from ddp.errors import UnknownStrategyError
from ddp.reduction.overlap import resolve_strategy
from tests.ddp.rank_threads import assert_alike, layers
from tests.given import switch

MINE = """
from dataclasses import dataclass
from ddp import Situation, Strategy

@dataclass(frozen=True)
class AtMost(Strategy):
    credits: int = 1

    def choose(self, situation: Situation) -> int:
        return max(0, min(len(situation.ready), self.credits - situation.in_flight))

class NotOne:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_strategy_of_a_file_has_its_name_and_parameters(mine):
    strategy = resolve_strategy(f"{mine}:AtMost:credits=3")

    assert strategy.credits == 3
    assert strategy.name == f"{mine}:AtMost:credits=3"
    assert resolve_strategy(strategy.name) == strategy
    assert resolve_strategy(f"{mine}:AtMost").name == f"{mine}:AtMost"


def test_it_is_simulated_as_what_it_is(mine):
    def step(strategy):
        return simulate_step(
            load_profile("resnet50"), topology=switch(4), strategy=strategy, algorithm="ring"
        ).time_ps

    assert step(f"{mine}:AtMost:credits=100") == step("wait_free")
    assert step(f"{mine}:AtMost") >= step("wait_free")


def test_it_trains_as_the_same_buckets_do_without_it(mine):
    def gradients(rank, strategy):
        module = layers([4, 4, 1])
        model = DistributedDataParallel(module, strategy=strategy, algorithm="ring", bucket_cap_mb=1e-5)
        model(torch.full((2, 4), float(rank))).sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    assert_alike(gradients, "wait_free", f"{mine}:AtMost")


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("{mine}:AtMots", UnknownStrategyError, "did you mean 'AtMost'"),
        ("{mine}:NotOne", UnknownStrategyError, "no overlap strategy 'NotOne' in this file"),
        ("{mine}:AtMost:credit=2", UnknownStrategyError, "did you mean 'credits'"),
        ("{mine}.py:AtMost", AlgorithmFileError, "no such file"),
        ("nothing", UnknownStrategyError, "or FILE.py:CLASS"),
    ],
)
def test_what_is_no_strategy_is_refused(mine, name, error, said):
    with pytest.raises(error, match=said):
        resolve_strategy(name.format(mine=mine))
