"""Our DDP does as torch's, wherever ranks are: every row of the tables in `tests.distributed.scenarios`."""

import warnings

import pytest

from tests.distributed.scenarios import graphs, hooks, interface, logged, mistakes, strategies, training
from tests.distributed.scenarios.scenario import PATIENCE, each

pytestmark = [
    pytest.mark.distributed, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3 * PATIENCE),
]  # fmt: skip

TABLES = (training, strategies, graphs, hooks, interface, logged, mistakes)


def check(pool, scenario, place):
    with warnings.catch_warnings(record=True):  # torch warns of its own optimizer, whatever the filters say
        scenario.check(pool, place)


@each(table.cases for table in TABLES)
def test_our_ddp_does_as_torchs(pool, scenario, place):
    check(pool, scenario, place)


@pytest.mark.costly
@each((table.cases for table in TABLES), costly=True)
def test_our_ddp_does_as_torchs_in_what_is_costly(pool, scenario, place):
    check(pool, scenario, place)
