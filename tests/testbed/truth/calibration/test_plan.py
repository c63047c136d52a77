from hypothesis import given
from hypothesis import strategies as st

from testbed.truth.calibration.plan import Wiring, blocks, exchanges, patterns_of, rack_of, sizes_up_to
from testbed.truth.calibration.rows import ITEM_SIZE

MIB = 1 << 20


def test_wiring_tells_nodes_racks_and_one_switch_apart():
    assert Wiring(8, 4).kind == "nodes"
    assert Wiring(8, 1, 4).kind == "leaf_spine"
    assert Wiring(8).kind == Wiring(8, 8).kind == "switch"


@given(num_ranks=st.integers(2, 17))
def test_pairs_stay_in_the_racks_that_there_might_be(num_ranks):
    for size, pairs in blocks(num_ranks).items():
        assert all(one // size == other // size for one, other in pairs)
        assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)


def seconds_of(num_ranks, rack, trunk):
    """What exchanges take if a rack of so many ranks shares a trunk of so many times a rank's rate."""
    found = {}
    for pairs in blocks(num_ranks).values():
        for pattern in exchanges(pairs, MIB):
            across = sum(one // rack != other // rack for one, other in pattern.groups)
            found[pattern] = max(1.0, across / trunk)
    return found


def test_racks_are_found_by_pairs_that_slow_each_other_down():
    assert rack_of(8, seconds_of(8, rack=4, trunk=2)) == 4
    assert rack_of(8, seconds_of(8, rack=2, trunk=0.5)) == 2
    assert rack_of(6, seconds_of(6, rack=3, trunk=1)) == 3


def test_nothing_speaks_for_racks_where_nobody_is_slowed_down():
    assert rack_of(8, seconds_of(8, rack=4, trunk=4)) is None
    assert rack_of(2, seconds_of(2, rack=2, trunk=1)) is None


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


def test_the_largest_size_that_passes_in_time_is_the_last():
    assert sizes_up_to(1 << 20)[-2:] == [1 << 19, 1 << 20]
    assert sizes_up_to(1 << 16)[-1] == 1 << 16


def test_what_depends_on_who_comes_first_is_not_measured():
    patterns = list(patterns_of(Wiring(4), MIB))

    assert not [own for own in patterns if own.is_native and own.collective == "all_to_all"]
    assert [own for own in patterns if not own.is_native and own.collective == "all_to_all"]


def test_several_pairs_at_once_cross_what_they_share():
    crossing = [own for own in patterns_of(Wiring(8, 4), MIB) if len(own.groups) > 1]

    assert {len(own.groups) for own in crossing} == {2, 3, 4}
    assert all(one < 4 <= other for own in crossing for one, other in own.groups)
