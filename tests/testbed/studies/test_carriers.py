import pytest

from collectives import resolve_algorithm, simulate
from sim import load_network
from sim.scenario.rank_overhead import RankOverhead
from testbed.studies.carriers import WORTH_SAYING, faster_than

NETWORK = load_network("dgx-a100", ideal=True).topology(16)


@pytest.mark.parametrize("launch", ["0s", "9us"])
@pytest.mark.parametrize("nbytes", [2**12, 2**26])
@pytest.mark.parametrize("name", ["ring", "tree", "naive", "halving_doubling"])
def test_what_is_said_to_be_faster_takes_that_much_less_by_itself(name, nbytes, launch):
    algorithm = resolve_algorithm(name, "all_reduce")
    counted = {"nbytes": nbytes, "topology": NETWORK, "step_overhead": launch}

    found = faster_than(algorithm, "all_reduce", nbytes, NETWORK, RankOverhead.of(step_overhead=launch))

    now = simulate(algorithm, **counted).seconds
    if found is None:
        assert simulate("auto", **counted).seconds > 0.8 * WORTH_SAYING * now
        return
    assert found.seconds_now == now
    assert found.seconds < WORTH_SAYING * now
    assert found.seconds == simulate(found.algorithm, **counted).seconds
