from __future__ import annotations

import pytest

from collectives import resolve_algorithm, simulate
from sim import load_network
from testbed.studies.carriers import WORTH_SAYING, faster_than

NETWORK = load_network("dgx-a100", ideal=True).topology(16)


@pytest.mark.parametrize("nbytes", [2**12, 2**26])
@pytest.mark.parametrize("name", ["ring", "tree", "naive", "halving_doubling"])
def test_what_is_said_to_be_faster_takes_that_much_less_by_itself(name: str, nbytes: int) -> None:
    algorithm = resolve_algorithm(name, "all_reduce")

    found = faster_than(algorithm, "all_reduce", nbytes, NETWORK)

    now = simulate(algorithm, nbytes=nbytes, topology=NETWORK).seconds
    if found is None:
        assert simulate("auto", nbytes=nbytes, topology=NETWORK).seconds > 0.8 * WORTH_SAYING * now
        return
    assert found.seconds_now == now
    assert found.seconds < WORTH_SAYING * now
    assert found.seconds == simulate(found.algorithm, nbytes=nbytes, topology=NETWORK).seconds
