import pytest

from tests.waiting import until


def test_a_wait_ends_with_what_it_waits_for():
    looks = iter([0, "", None, "come"])

    assert until(lambda: next(looks), "a word") == "come"


def test_a_wait_in_vain_names_what_did_not_come():
    with pytest.raises(AssertionError, match=r"after 0 s still waiting for a bus"):
        until(lambda: False, "a bus", seconds=0)
