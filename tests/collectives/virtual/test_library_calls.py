"""A run's collectives by NCCL's choice take what NCCL's own take, and longer where they share links."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError, simulate
from collectives.virtual import VirtualRun, run
from sim import load_network
from tests.collectives.virtual.clusters import in_group, on_gpus

BY_LIBRARY = {"algorithm": "nccl", "transport_model": "nccl", "model": "library"}
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

NETWORKS = {name: load_network(name) for name in ("dgx-h100", "dgx-a100", "aws-p6-b200")}
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def call(collective: str, count: int, device: str = "cpu", times: int = 1) -> None:
    whole = torch.zeros(count, device=device)
    part = torch.zeros(count // dist.get_world_size(), device=device)
    for _ in range(times):
        if collective == ALL_REDUCE:
            dist.all_reduce(whole)
        elif collective == ALL_GATHER:
            dist.all_gather_into_tensor(whole, part)
        else:
            dist.reduce_scatter_tensor(part, whole)


@given(
    st.sampled_from(list(NETWORKS)),
    st.sampled_from([2, 4, 8, 16]),
    st.sampled_from(COLLECTIVES),
    st.integers(1, 400_000),
)
@settings(max_examples=12, deadline=None)
def test_alone_a_collective_takes_what_the_library_does(network, num_ranks, collective, count):
    count *= num_ranks
    topology = NETWORKS[network].topology(num_ranks)

    took = in_group(
        lambda rank: call(collective, count), num_ranks, "nccl", network=topology, **BY_LIBRARY
    ).report

    expected = simulate("nccl", nbytes=4 * count, collective=collective, topology=topology, model="library")
    assert took.seconds == expected.seconds
    assert took.timed_by == "library"


def on_streams(collective: str, nbytes: int, num_ranks: int, times: int = 1) -> VirtualRun:
    def script(rank):
        dist.init_process_group("nccl")
        call(collective, nbytes // 4, "cuda", times)
        torch.cuda.synchronize()

    return on_gpus(script, num_ranks, NETWORKS["dgx-h100"].topology(num_ranks), fake=True, **BY_LIBRARY)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("num_ranks", "megabytes"), [(16, 1), (16, 256), (1024, 1)])
def test_so_it_does_on_the_streams_of_a_gpu(collective, num_ranks, megabytes):
    nbytes, topology = megabytes * 2**20, NETWORKS["dgx-h100"].topology(num_ranks)

    longer, shorter = (on_streams(collective, nbytes, num_ranks, times).seconds for times in (9, 8))

    expected = simulate("nccl", nbytes=nbytes, collective=collective, topology=topology, model="library")
    assert longer - shorter == pytest.approx(expected.seconds, rel=1e-9)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_what_stands_for_it_in_a_large_group_has_no_message_for_each_pair(collective):
    (carried,) = on_streams(collective, 2**20, 1024).report.carried

    assert str(carried.algorithm) != "direct"


def test_two_at_once_that_share_cards_take_longer_than_one():
    topology = NETWORKS["dgx-h100"].topology(16)

    def seconds(groups):
        def script(rank):
            made = [dist.new_group(ranks) for ranks in groups]
            works = [
                dist.all_reduce(torch.zeros(2**19), group=group, async_op=True)
                for group, ranks in zip(made, groups, strict=True)
                if rank in ranks
            ]
            for work in works:
                work.wait()

        return in_group(script, 16, "nccl", network=topology, **BY_LIBRARY).report.seconds

    everybody = list(range(16))
    one, two = seconds([everybody]), seconds([everybody, everybody])
    apart = seconds([everybody[:8], everybody[8:]])
    inside = simulate("nccl", nbytes=2**21, topology=NETWORKS["dgx-h100"].topology(8), model="library")

    assert one < two
    assert apart == inside.seconds


@pytest.mark.parametrize(
    ("network", "counted", "message"),
    [
        ("ethernet-25g", {"model": "library", "algorithm": "nccl"}, "does not say what GPUs it has"),
        ("dgx-h100", {"model": "measured"}, "a run is timed by 'links'"),
        ("dgx-h100", {"model": "library", "overhead": "1us"}, "leave out protocol, overheads"),
    ],
)
def test_what_a_run_cannot_be_timed_by_is_refused(network, counted, message):
    with pytest.raises(NotSupportedError, match=message):
        run(lambda rank: None, 8, network, **counted)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("num_ranks", [8, 12, 16, 18])
def test_where_the_librarys_time_is_not_known_the_report_says_what_is_taken(collective, num_ranks):
    topology = NETWORKS["dgx-h100"].topology(num_ranks)

    took = in_group(
        lambda rank: call(collective, 4 * num_ranks), num_ranks, "nccl", network=topology, **BY_LIBRARY
    ).report

    noted = [notice for notice in took.notices if f"{collective} takes what NCCL's program does" in notice]
    assert len(noted) == (num_ranks % 8 > 0)
