"""Every system as processes, whose default group is ours, over Gloo."""

import pytest

from tests.systems.catalogue import SYSTEMS, run_in_process

pytestmark = pytest.mark.distributed


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does
@pytest.mark.parametrize("name", SYSTEMS)
def test_it_gives_what_one_process_gives(pool, name):
    system = SYSTEMS[name]
    if name == "loader with workers":
        pool.close()  # it forks: new processes, as a user's are, without threads and groups of earlier tests

    outcomes = pool.run(run_in_process, system.world_size, name, backend="testbed", timeout=100.0)

    results, calls = zip(*outcomes, strict=True)
    system.check(results, calls)
