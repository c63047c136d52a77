"""Overlapping or repeating samples: noticed where ranks' samplers give them, and only there."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from collectives.virtual import run
from tests.given import switch


def notices(make: Callable[[int], DistributedSampler[Any]], passes: Callable[[Any], None], ranks: int):
    return run(lambda rank: passes(make(rank)), network=switch(ranks)).report.notices


def epochs(sampler: DistributedSampler[Any]) -> None:
    for epoch in range(3):
        sampler.set_epoch(epoch)
        list(sampler)


@settings(max_examples=40)
@given(
    num_samples=st.integers(1, 30),
    shape=st.sampled_from([(1, 1), (2, 2), (3, 3), (4, 4), (2, 4)]),
    options=st.fixed_dictionaries({"shuffle": st.booleans(), "drop_last": st.booleans()}),
    seeds=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_only_data_that_overlap_beyond_padding_are_noticed(num_samples, shape, options, seeds):
    num_replicas, ranks = shape
    taken = {}

    def make(rank):
        share = rank % num_replicas
        sampler = DistributedSampler(range(num_samples), num_replicas, share, seed=seeds[share], **options)
        taken[share] = list(sampler)
        return sampler

    said = notices(make, lambda sampler: None, ranks)

    together = [index for own in taken.values() for index in own]
    padding = max(0, len(together) - num_samples)
    same = not options["shuffle"] or len(set(seeds[:num_replicas])) == 1
    overlap = len(together) - len(set(together)) > padding
    assert bool(said) == overlap
    assert not (same and said)


def test_epochs_that_are_set_and_passes_that_are_broken_off_are_no_mistake():
    def look_then_train(sampler):
        next(iter(sampler))
        epochs(sampler)

    def in_order(sampler):
        list(sampler), list(sampler)

    assert notices(lambda rank: DistributedSampler(range(9), 2, rank), look_then_train, 2) == ()
    unshuffled = lambda rank: DistributedSampler(range(9), 2, rank, shuffle=False)  # noqa: E731
    assert notices(unshuffled, in_order, 2) == ()


def test_ranks_that_all_say_rank_0_are_named():
    torchs = DistributedSampler.__iter__, dist.distributed_c10d._warn_not_in_group

    (text,) = notices(lambda rank: DistributedSampler(range(8), 2, 0, shuffle=False), epochs, 2)

    assert "see overlapping data and 4 of 8 samples in all" in text
    assert "rank= is 0 on ranks 0, 1" in text
    assert torchs == (DistributedSampler.__iter__, dist.distributed_c10d._warn_not_in_group)
