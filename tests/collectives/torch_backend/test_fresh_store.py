from __future__ import annotations

import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore

from collectives.errors import CollectiveTimeoutError
from collectives.torch_backend.fresh_store import fresh_store


def meet(store: Any, world_size: int, seconds: float = 20.0, without: int | None = None) -> dict[int, Any]:
    """Return what each rank gets, a store or an error; *without* never comes."""
    found: dict[int, Any] = {}

    def come(rank: int) -> None:
        try:
            found[rank] = fresh_store(store, rank, world_size, seconds)
        except CollectiveTimeoutError as error:
            found[rank] = error

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(world_size) if rank != without]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 4))
def test_whatever_earlier_lives_have_left_ranks_meet_in_a_part_that_is_new(
    world_size: int, lives: int, dead: int
) -> None:
    store = HashStore()
    for life in range(lives):
        stores = meet(store, world_size)
        assert not any(own.check([f"here/{rank}"]) for own in stores.values() for rank in stores)
        for rank, own in stores.items():
            own.set(f"here/{rank}", str(life))
        assert all(stores[0].check([f"here/{rank}"]) for rank in stores)
    store.set(f"word/{1 + dead % (world_size - 1)}", "of a process that has died")

    last = meet(store, world_size)

    assert not last[0].check(["here/0"])


def test_a_rank_that_never_comes_is_named() -> None:
    found = meet(HashStore(), 3, seconds=0.3, without=2)

    assert "rank 2 did not come" in str(found[0])


def test_a_rank_that_is_alone_has_nobody_to_agree_with() -> None:
    store = HashStore()

    assert fresh_store(store, 0, 1, 1.0) is store
