"""Strategies that update parameters themselves train as plain DDP does, on rank threads in virtual time."""

import copy
import logging
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ddp import DistributedDataParallel
from ddp.reduction.overlap import STRATEGIES
from sim import Cluster, RankError
from tests.ddp.rank_threads import OPTIMIZERS, OVERLAPPED, assert_alike, layers, on_ranks, overlapped

TRAINING = [*OVERLAPPED, *(name for name, own in STRATEGIES.items() if own.whole_buckets)]


def train(
    rank: int, widths: list[int], strategy: str, optimizer: str, seed: int = 0, delay: int = 0
) -> list[torch.Tensor]:
    """Train on this rank's own data, which takes it its own time."""
    clock = Cluster.current()
    model, own = overlapped(layers(widths), strategy, optimizer, bucket_cap_mb=0.0004)
    scheduler = torch.optim.lr_scheduler.StepLR(own.inner, 2, gamma=0.5)
    data = torch.Generator().manual_seed(100 * seed + rank)
    for step in range(4):
        clock.charge_ps(delay * 10**6 * (rank * 7919 + step * 31 + 3) % 10**9)
        own.zero_grad()
        with model.no_sync():
            model(torch.randn(3, widths[0], generator=data)).square().mean().backward()
        model(torch.randn(3, widths[0], generator=data)).square().mean().backward()
        own.step()
        scheduler.step()
    return [value.clone() for value in model.state_dict().values()]


@pytest.mark.costly
@given(
    widths=st.lists(st.integers(1, 20), min_size=2, max_size=5),
    strategy=st.sampled_from(TRAINING),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    seed=st.integers(0, 99),
    delay=st.integers(0, 50),
)
@settings(max_examples=15, deadline=None)
def test_training_ends_with_the_bits_of_training_without_overlap(widths, strategy, optimizer, seed, delay):
    assert_alike(
        lambda rank, name: train(rank, widths, name, optimizer, seed=seed, delay=delay),
        "after_backward",
        strategy,
    )


@pytest.mark.costly
@pytest.mark.parametrize("strategy", OVERLAPPED)
def test_a_module_can_be_copied_pickled_and_loaded_while_updates_are_due(strategy):
    def one(rank):
        model, own = overlapped(layers([3, 4, 2]), strategy, bucket_cap_mb=1e-5, algorithm="native")
        start = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(2):
            model(torch.ones(1, 3)).sum().backward()
            own.step()
        model.load_state_dict(start)
        own.synchronize()
        loaded = [torch.equal(start[name], value) for name, value in model.state_dict().items()]
        copies = copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module))
        expected = model.module(torch.ones(1, 3))
        return loaded + [torch.equal(own(torch.ones(1, 3)), expected) for own in copies]

    assert all(all(results) for results in on_ranks(one))


def test_the_optimizers_state_is_divided_among_the_ranks():
    def one(rank):
        model, own = overlapped(
            layers([30, 40, 50]), "zero1", "adam", bucket_cap_mb=0.002, algorithm="native"
        )
        model(torch.ones(1, 30)).sum().backward()
        own.step()
        state = own.state_dict()["state"].values()
        return sum(entry["exp_avg"].numel() for entry in state), sum(p.numel() for p in model.parameters())

    for kept, whole in on_ranks(one, 4):
        assert whole / 4 <= kept < whole / 4 + 10


def wrapped(strategy: str, **options) -> DistributedDataParallel:
    return DistributedDataParallel(nn.Linear(2, 2), strategy=strategy, algorithm="ring", **options)


def test_a_strategy_that_updates_parameters_itself_needs_its_optimizer():
    with pytest.raises(RankError, match=r"strategy dear updates .* itself: .* make .*OverlappedOptimizer"):
        on_ranks(lambda rank: wrapped("dear")(torch.ones(1, 2)))


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("dear", {"gradient_as_bucket_view": True}, "does not go with gradient_as_bucket_view"),
        ("zero1", {"find_unused_parameters": True}, "find_unused_parameters needs gradients"),
        ("priority", {"check_gradients": "finite"}, "check_gradients needs gradients"),
        ("accumulate:k=2", {"static_graph": True}, "static_graph needs gradients"),
        ("fsdp", {}, "strategy 'fsdp' can be simulated only"),
    ],
)
def test_what_a_strategy_cannot_do_is_refused_by_name(strategy, options, message):
    with pytest.raises(RankError, match=message):
        on_ranks(lambda rank: wrapped(strategy, **options))


def test_rank_zero_logs_what_became_of_the_buckets(caplog):
    def one(rank):
        model = DistributedDataParallel(layers([3, 4, 2]), strategy="wait_free", algorithm="ring")
        model(torch.ones(1, 3)).sum().backward()
        return model.bucket_table()

    with caplog.at_level(logging.DEBUG, logger="ddp"):
        tables = on_ranks(one)

    (record,) = [record for record in caplog.records if record.name == "ddp"]
    assert record.getMessage().endswith(tables[0])
    head, bucket, total = tables[0].splitlines()
    assert head.split() == [
        "bucket", "collective", "bytes", "complete", "launched", "start", "end", "exposed",
    ]  # fmt: skip
    assert bucket.split()[:3] == ["0", "all_reduce", "104"]
    assert total.split()[:4] == ["all", "0.0%", "hidden", "104"]


def test_accumulation_reduces_every_kth_pass():
    def one(rank):
        module = nn.Linear(1, 1, bias=False)
        model = DistributedDataParallel(module, strategy="accumulate:k=3", algorithm="ring")
        model.load_state_dict({"module.weight": torch.ones(1, 1)})
        seen = []
        for step in range(6):
            if step % 3 == 0:
                model.zero_grad()
            model(torch.tensor([[float(rank + 1) * (step + 1)]])).backward()
            seen.append(module.weight.grad.item())
        return seen

    assert on_ranks(one) == [[1.0, 3.0, 9.0, 4.0, 9.0, 22.5], [2.0, 6.0, 9.0, 8.0, 18.0, 22.5]]
