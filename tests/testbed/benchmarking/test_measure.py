"""Algorithms take turns, rows mean what nccl-tests means, and what is wrong adds up."""

import pytest
import torch

from collectives import NotSupportedError
from testbed.benchmarking.candidates import BenchRequest, Refusal, TransportName
from testbed.benchmarking.measure import Sample, combine, row, sample
from testbed.benchmarking.payload import count_of


class Alone:
    """A communicator of one rank; *spoil* is what its all-reduce does to the tensor."""

    rank, world_size, launcher = 0, 1, None

    def __init__(self, name="", calls=None, spoil=lambda tensor: None):
        self.name = name
        self.calls = [] if calls is None else calls
        self.spoil = spoil

    def all_reduce(self, tensor):
        self.calls.append(self.name)
        self.spoil(tensor)

    def barrier(self):
        self.calls.append("|")


def request(iterations=1, warmup=0, num_ranks=1):
    return BenchRequest(
        TransportName.THREADS, num_ranks, "all_reduce", (), (10,), "float32", iterations, warmup, 1.0
    )


def samples_of(*communicators, iterations=3, warmup=1):
    named = {communicator.name: communicator for communicator in communicators}
    return list(sample(named, request(iterations, warmup), torch.device("cpu")))


def refuse(tensor):
    raise NotSupportedError("not here")


@pytest.mark.parametrize(
    ("spoil", "wrong"), [(lambda tensor: None, 0), (lambda tensor: tensor[3:5].add_(1), 4)]
)
def test_every_wrong_element_is_counted_in_both_checks(spoil, wrong):
    (taken,) = samples_of(Alone(spoil=spoil))

    assert (taken.count, taken.wrong, len(taken.seconds)) == (10, wrong, 3)


def test_several_take_turns_and_each_makes_all_its_calls():
    calls = []

    taken = samples_of(Alone("a", calls), Alone("b", calls), iterations=7)

    turns = ["a|ab|b", "b|ba|a", "a|aab|bb", "b|ba|a", "a|aab|bb"]
    assert "".join(calls) == "ab" + "".join(turns) + "ab"
    assert [len(own.seconds) for own in taken if isinstance(own, Sample)] == [5, 5]


def test_one_of_several_that_refuses_is_measured_no_further_and_a_single_one_raises():
    refusing = Alone("b", spoil=refuse)

    taken = samples_of(Alone("a"), refusing)

    assert Refusal("b", "not here") in taken
    assert [own.algorithm for own in taken] == ["b", "a"]
    assert refusing.calls == ["b"]
    with pytest.raises(NotSupportedError, match="not here"):
        samples_of(Alone(spoil=refuse))


def test_a_row_takes_the_median_call_of_the_slowest_rank_and_adds_up_what_is_wrong():
    fast, slow = Sample("ring", 1024, (1e-6, 1e-6, 9e-6), 1), Sample("ring", 1024, (2e-6, 3e-6, 1e-6), 2)

    (combined,), refusals = combine([[fast], [slow]], request(num_ranks=2))

    assert (combined.time_us, combined.wrong, refusals) == (pytest.approx(3.0), 3, [])


@pytest.mark.parametrize(
    ("collective", "size", "busbw", "redop", "root"),
    [
        ("all_reduce", 10**9, 3.0, "sum", None),
        ("all_gather", 4 * 10**9, 6.0, "none", None),
        ("reduce_scatter", 4 * 10**9, 6.0, "sum", None),
        ("broadcast", 10**9, 2.0, "none", 0),
        ("scatter", 4 * 10**9, 6.0, "none", 0),
    ],
)
def test_a_row_counts_as_nccl_tests_does(collective, size, busbw, redop, root):
    request = BenchRequest(TransportName.SIM, 4, collective, (), (250_000_000,), "float32", 1, 0, 1.0)

    measured = row(request, "ring", 250_000_000, seconds=0.5, wrong=0)

    assert (measured.size_bytes, measured.busbw_gbs) == (size, busbw)
    assert (measured.redop, measured.root) == (redop, root)


def test_a_size_is_that_of_the_whole_buffer_and_its_parts_are_equal():
    assert count_of(100, "float32") == 25
    assert count_of(100, "float32", "all_gather", world_size=3) == 8
    assert count_of(100, "float32", "broadcast", world_size=3) == 25
