"""Jobs: who takes part, where, beside whom, and by which model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import Job, NotSupportedError, resolve_algorithm, simulate, simulate_jobs
from collectives.algorithms import ALGORITHMS
from sim import Straggler, load_network
from sim.topology.placement import places
from tests.given import switch
from tests.sim.networks import networks

MIB = 2**20
ALL_REDUCE = [shipped.name for shipped in ALGORITHMS if shipped.collective == "all_reduce"]


@given(
    topology=networks(max_ranks=10, bandwidth=st.integers(10**8, 10**12)),
    name=st.sampled_from(ALL_REDUCE),
    nbytes=st.integers(0, 10**6),
    start=st.integers(0, 5),
)
def test_a_job_alone_takes_what_it_takes_at_any_time(topology, name, nbytes, start):
    (alone,) = simulate_jobs([Job(name, nbytes, start=f"{start}ms")], topology=topology)

    assert alone.start_ps == start * 10**9
    assert alone.time_ps == simulate(name, nbytes=nbytes, topology=topology, engine="events").time_ps


@given(half=st.integers(1, 6), nbytes=st.integers(0, 10**6), name=st.sampled_from(ALL_REDUCE))
def test_jobs_of_other_ranks_on_a_switch_do_not_disturb_each_other(half, nbytes, name):
    jobs = [Job(name, nbytes, placement=range(half)), Job(name, nbytes // 2, placement=range(half, 2 * half))]

    together = simulate_jobs(jobs, topology=switch(2 * half))

    for run, job in zip(together, jobs, strict=True):
        assert run.time_ps == simulate(name, nbytes=job.nbytes, topology=switch(half)).time_ps


@given(topology=networks(max_ranks=10), data=st.data())
def test_a_list_of_places_is_what_the_names_stand_for(topology, data):
    name = data.draw(st.sampled_from(["packed", "round_robin"]))
    by_name = simulate("ring", nbytes=1000, topology=topology, placement=name)

    assert by_name == simulate("ring", nbytes=1000, topology=topology, placement=places(name, topology))


def test_what_nccl_and_switches_that_reduce_are_expected_to_take_is_no_simulation_and_says_so():
    topology, node = (load_network("dgx-h100").topology(num_ranks) for num_ranks in (16, 8))

    chosen = simulate("auto", nbytes=256 * MIB, topology=topology, model="nccl")
    ring = simulate("ring", nbytes=256 * MIB, topology=topology, model="nccl")

    assert (chosen.engine, chosen.model) == (ring.engine, ring.model) == ("closed form", "nccl")
    assert ring.algorithm.startswith("Ring/")
    assert chosen.time_ps <= ring.time_ps
    assert chosen.floor_seconds <= chosen.seconds
    nvls = simulate("nvls", nbytes=256 * MIB, topology=node)
    assert (nvls.engine, nvls.algorithm) == ("closed form", "nvls")
    assert nvls.time_ps < simulate("ring", nbytes=256 * MIB, topology=node).time_ps


DGX, DGX_NODE = (load_network("dgx-h100").topology(num_ranks) for num_ranks in (16, 8))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "nccl", "algorithm": "swing"}, "knows of no algorithm swing"),
        ({"model": "nccl", "algorithm": resolve_algorithm("ring")}, "knows of no algorithm ring"),
        ({"model": "nccl", "topology": switch(4)}, "says nothing of its hardware"),
        ({"model": "nccl", "collective": "gather"}, "does not know gather"),
        ({"model": "nccl", "placement": "round_robin"}, "for placement 'packed'"),
        ({"model": "packets"}, "model must be 'links', 'nccl', 'measured' or 'library'"),
        ({"algorithm": "nvls", "topology": DGX_NODE, "overhead": "1us"}, "without overhead"),
        ({"algorithm": "nvls", "topology": switch(4)}, "switches do not reduce"),
        (
            {"algorithm": "nvls", "topology": DGX_NODE, "transport_model": "gloo"},
            "transport_model='gloo' is another",
        ),
        ({"transport_model": "mpi"}, "one of ideal, gloo, nccl, shm, got 'mpi'"),
        ({"engine": "packets"}, "engine must be"),
        ({"nbytes": -1}, "nbytes must be a multiple of itemsize"),
        ({"nbytes": 10, "itemsize": 4}, "nbytes must be a multiple of itemsize"),
        ({"itemsize": 0}, "nbytes must be a multiple of itemsize"),
        ({"placement": "spiral"}, "placement: expected 'packed'"),
        ({"placement": [64]}, "placement of rank 0: .* has places 0 to 15, got 64"),
        ({"overhead": "fast"}, "overhead: cannot read 'fast'"),
        ({"reduction_bandwidth": "fast"}, "reduction_bandwidth: cannot read 'fast'"),
        ({"conditions": [Straggler(0, 2)], "model": "nccl"}, "knows no conditions; leave out Straggler"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(arguments, said):
    usual = {"algorithm": "auto", "nbytes": MIB, "topology": DGX}

    with pytest.raises((NotSupportedError, ValueError), match=said):
        simulate(**{**usual, **arguments})


def test_jobs_without_one_are_refused():
    with pytest.raises(ValueError, match="expected at least one Job"):
        simulate_jobs([], topology=switch(2))
