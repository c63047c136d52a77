"""Fits find the constants again that made the times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError
from collectives.timing import simulate
from sim import Topology
from testbed.calibration.live.comparison import fit_switch
from testbed.calibration.live.constants import CACHED, COSTS, names_of, network, predicted
from testbed.calibration.live.fit import fit
from testbed.calibration.live.measurement import Measured
from testbed.calibration.live.plan import (
    ITEM_SIZE,
    Row,
    Wiring,
    blocks,
    exchanges,
    patterns_of,
    rack_of,
)
from testbed.calibration.live.result import calibration_of

RATE = 25e6
THREE = Wiring(3)
HOST = Wiring(2, 2, in_memory=True, cache=16 << 20)


def links(kind, latency, one_way, both_ways):
    """Return the constants of a class of links, whose bytes take so long."""
    ways = {"one_way": one_way, "both_ways": both_ways}
    found = {f"{kind} {way} {k}": own for way, each in ways.items() for k, own in enumerate(each, 1)}
    return {f"{kind} latency": latency, **found}


def costs(by, *seconds):
    return {f"{by} {cost}": own for cost, own in zip(COSTS, seconds, strict=False)}


SOFTWARE = costs("programs", 60e-6, 30e-6, 1 / 2e9) | costs("native", 15e-6, 0.0, 1 / 4e9)
TRUE = SOFTWARE | links(
    "between_nodes", 80e-6, (1 / 0.95 / RATE, 1 / 0.96 / RATE), (1 / 0.92 / RATE, 1 / 0.9 / RATE)
)


def rows_of(wiring, constants, largest=1 << 19, noise=0.003, seed=0):
    drawn = np.random.default_rng(seed)
    topology = network(wiring, constants)
    rows = []
    for pattern in patterns_of(wiring, largest):
        seconds = predicted(pattern, topology, constants)
        rows.append(Row(pattern, tuple(seconds * (1 + noise * drawn.standard_normal(5)))))
    return rows


@pytest.fixture(scope="module")
def fitted():
    return fit(rows_of(THREE, TRUE), THREE, {"between_nodes": RATE})


@pytest.mark.costly
def test_constants_that_rows_follow_are_found_again(fitted):
    found = fitted.found

    for name in ("between_nodes one_way 1", "between_nodes one_way 2"):
        assert found[name] == pytest.approx(TRUE[name], rel=0.01)
    assert found["between_nodes both_ways 1"] == pytest.approx(1 / 0.92 / RATE, rel=0.02)
    one_way = found["between_nodes latency"] + found["programs overhead"] + found["programs arrival"]
    assert one_way == pytest.approx(170e-6, abs=15e-6)
    assert np.median(np.abs(fitted.errors)) < 0.01


def test_an_interval_holds_the_constant_that_it_belongs_to(fitted):
    assert np.all(fitted.low <= fitted.values)
    assert np.all(fitted.values <= fitted.high)
    number = fitted.names.index("between_nodes one_way 1")
    assert fitted.low[number] <= 1.005 / 0.95 / RATE
    assert fitted.high[number] >= 0.995 / 0.95 / RATE


@pytest.mark.slow
def test_a_trunk_is_found_and_what_nothing_tells_of_it_is_as_its_neighbours():
    racks = Wiring(4, 1, 2)
    host = (1 / 0.95 / RATE,) * 3
    trunk = (1 / 0.9 / RATE,) * 3
    true = SOFTWARE | links("between_nodes", 80e-6, host, host) | links("trunk", 80e-6, trunk, trunk)
    rows = rows_of(racks, true, largest=1 << 18)

    fitted = fit(rows, racks, {"between_nodes": RATE})

    found = fitted.found
    constants = [f"trunk {way} {flows}" for way in ("one_way", "both_ways") for flows in (1, 2, 3)]
    assert [found[name] for name in constants] == pytest.approx([trunk[0]] * 6, rel=0.05)


def test_too_few_rows_are_refused():
    with pytest.raises(NotSupportedError, match="2 rows are too few for"):
        fit(rows_of(THREE, TRUE)[-2:], THREE)


@pytest.mark.parametrize("wiring", [Wiring(2), Wiring(4, 2), Wiring(4, 4), Wiring(4, 1, 2), HOST])
def test_a_vector_names_the_constants_of_every_wiring(wiring):
    values = {name: number * 1e-6 for number, name in enumerate(names_of(wiring), 1)}

    topology = network(wiring, values)
    times = [predicted(pattern, topology, values) for pattern in patterns_of(wiring, 1 << 16)]

    assert min(times) > 0
    assert [*values][-1] == ("programs copied" if wiring is HOST else "native reduced")


@pytest.mark.slow
def test_a_host_and_what_calls_take_there_are_found_again():
    true = {
        **links("inside_node", 20e-6, (1 / 6e9,), (1 / 3.6e9,)),
        **links("memory", 0.0, (1 / 6.6e9,), ()),
        **costs("programs", 5e-6, 10e-6, 0.0, 80e-6, 1 / 5e9),
        **dict(zip(CACHED, (1 / 9e9, 1 / 15e9), strict=True)),
    }
    measured = Measured(tuple(rows_of(HOST, true, largest=1 << 26)), replace(HOST, cache=0), 3.0)

    calibration, fitted = calibration_of(measured)

    assert calibration.native is None
    assert calibration.programs.call_overhead.value == pytest.approx(80e-6, rel=0.1)
    assert calibration.programs.copy_bandwidth.value == pytest.approx(5e9, rel=0.05)
    assert calibration.cached.speedup == pytest.approx(1.5, rel=0.05)
    assert calibration.cached.copy_speedup == pytest.approx(3, rel=0.1)
    assert 2 << 22 < calibration.cached.nbytes < 2 << 24
    assert np.abs(fitted.errors).max() < 0.05


@pytest.mark.costly
def test_rates_that_nobody_states_are_the_most_that_flows_get():
    calibration, _ = calibration_of(Measured(tuple(rows_of(THREE, TRUE)), THREE, 3.0))
    shares = calibration.classes["between_nodes"]

    assert shares.rate.value == pytest.approx(0.96 * RATE, rel=0.01)
    assert max(own.value for own in (*shares.one_way, *shares.both_ways)) == pytest.approx(1, rel=1e-3)
    assert calibration.origin.largest >= 1 << 19
    assert [own.nbytes for own in calibration.fits] == sorted(own.nbytes for own in calibration.fits)


SIZES = [2**exponent for exponent in range(12, 25, 3)]


def seconds_of(algorithm):
    return lambda nbytes, topology: simulate(algorithm, nbytes=nbytes, topology=topology).seconds


@given(
    algorithm=st.sampled_from(["naive", "ring", "tree"]),
    world_size=st.integers(2, 9),
    bandwidth=st.integers(10**8, 10**11),
    latency=st.floats(1e-6, 1e-3),
)
@settings(max_examples=25)
def test_the_network_that_made_the_times_is_found_again(algorithm, world_size, bandwidth, latency):
    network = Topology.switch(num_ranks=world_size, bandwidth=bandwidth, latency=round(latency, 9))
    seconds = [simulate(algorithm, nbytes=size, topology=network).seconds for size in SIZES]

    fitted = fit_switch(seconds_of(algorithm), world_size, SIZES, seconds)

    again = [simulate(algorithm, nbytes=size, topology=fitted).seconds for size in SIZES]
    assert again == pytest.approx(seconds, rel=1e-3)


MIB = 1 << 20


@given(num_ranks=st.integers(2, 17))
def test_pairs_stay_in_the_racks_that_there_might_be(num_ranks):
    for size, pairs in blocks(num_ranks).items():
        assert all(one // size == other // size for one, other in pairs)
        assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)


def seconds_of_exchanges(num_ranks, rack, trunk):
    """What exchanges take if a rack of so many ranks shares a trunk of so many times a rank's rate."""
    found = {}
    for pairs in blocks(num_ranks).values():
        for pattern in exchanges(pairs, MIB):
            across = sum(one // rack != other // rack for one, other in pattern.groups)
            found[pattern] = max(1.0, across / trunk)
    return found


@pytest.mark.parametrize(
    ("num_ranks", "rack", "trunk", "found"),
    [(8, 4, 2, 4), (8, 2, 0.5, 2), (6, 3, 1, 3), (8, 4, 4, None), (2, 2, 1, None)],
)
def test_racks_are_found_by_pairs_that_slow_each_other_down_if_any_do(num_ranks, rack, trunk, found):
    assert rack_of(num_ranks, seconds_of_exchanges(num_ranks, rack, trunk)) == found


@given(
    wiring=st.sampled_from([Wiring(2), Wiring(5), Wiring(8, 4), Wiring(8, 8), Wiring(6, 1, 3)]),
    largest=st.sampled_from([1 << 16, 1 << 20, 1 << 26]),
)
def test_every_pattern_holds_whole_elements_for_groups_apart(wiring, largest):
    for pattern in patterns_of(wiring, largest):
        members = [rank for group in pattern.groups for rank in group]
        assert len(members) == len(set(members))
        assert max(members) < wiring.num_ranks
        assert pattern.nbytes % ITEM_SIZE == 0
        assert pattern.nbytes <= largest + ITEM_SIZE * wiring.num_ranks


def test_pairs_cross_what_they_share_and_what_depends_on_who_comes_first_is_not_measured():
    patterns = list(patterns_of(Wiring(4), MIB))
    crossing = [own for own in patterns_of(Wiring(8, 4), MIB) if len(own.groups) > 1]

    assert {own.is_native for own in patterns if own.collective == "all_to_all"} == {False}
    assert {len(own.groups) for own in crossing} == {2, 3, 4}
    assert all(one < 4 <= other for own in crossing for one, other in own.groups)
