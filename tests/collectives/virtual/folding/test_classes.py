"""Classes of ranks: who speaks for whom, and which calls no class can make."""

import pytest

from collectives.virtual.folding.classes import Classes, MembersDiffer, RankClass


def test_ranks_in_no_class_speak_for_themselves():
    classes = Classes()

    assert (classes.representative(7), classes.members(7)) == (7, (7,))
    assert list(classes.threads(3)) == [0, 1, 2]


def test_a_probe_speaks_for_itself_until_it_is_merged():
    classes = Classes([RankClass((1, 2, 3, 4), probes=[4])])

    assert list(classes.threads(6)) == [0, 1, 4, 5]
    assert (classes.members(1), classes.members(4)) == ((1, 2, 3), (4,))
    assert [classes.representative(rank) for rank in range(6)] == [0, 1, 1, 1, 4, 5]

    classes.folded[0].merge([4])

    assert classes.members(1) == (1, 2, 3, 4)
    assert classes.representative(4) == 1
    assert str(classes.folded[0]) == "ranks 1, 2, 3, 4 as rank 1"


def test_ranks_in_no_group_like_that_of_a_call_are_another_class():
    classes = Classes([RankClass(range(4))])
    classes.partitions.announce(0, (0, 3))

    with pytest.raises(MembersDiffer) as caught:
        classes.check_group((0, 3), 0, 0)

    assert [caught.value.key(rank) for rank in range(4)] == [0, None, None, 0]


def test_a_root_that_the_script_names_speaks_for_itself():
    classes = Classes([RankClass(range(4))])
    classes.partitions.announce(0, (0, 1, 2, 3))
    for hosts in [(0, 1), (2, 3)]:
        classes.partitions.announce(0, hosts)

    classes.check_root((0, 1, 2, 3), 0, 0)
    classes.check_root((0, 1), 0, 1)  # of two groups that were made together
    with pytest.raises(MembersDiffer, match="rank 2 is the root") as caught:
        classes.check_root((0, 1, 2, 3), 0, 2)

    assert [caught.value.key(rank) for rank in range(4)] == [False, False, True, False]
