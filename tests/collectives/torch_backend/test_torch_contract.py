"""Groups keep torch's contract, whatever carries their messages."""

import pytest

from tests.collectives.torch_backend import torch_contract, torch_message_contract
from tests.collectives.torch_backend.rank_threads import on_ranks

SCENARIOS = (*torch_contract.SCENARIOS, *torch_message_contract.SCENARIOS)


def test_a_group_of_rank_threads_keeps_the_contract():
    on_ranks(4, lambda rank: torch_contract.play(rank, SCENARIOS))


@pytest.mark.distributed
@pytest.mark.timeout(300)
@pytest.mark.parametrize("carrier", ["shm", "gloo"])
def test_a_group_of_processes_keeps_the_contract(pool, carrier):
    pool.run(torch_contract.play_in_process, 4, carrier, SCENARIOS, timeout=200)
