from __future__ import annotations

import os
from itertools import count

import pytest

from testbed.errors import LaunchError
from testbed.tasks import results


def in_process(item: int) -> tuple[int, int]:
    return item, os.getpid()


def test_one_worker_is_this_process_and_takes_items_as_it_goes() -> None:
    taken = results(in_process, count(), workers=1)

    assert [next(taken) for _ in range(3)] == [(item, os.getpid()) for item in range(3)]


@pytest.mark.distributed
def test_processes_share_the_items() -> None:
    found = dict(results(in_process, range(20), workers=2))

    assert sorted(found) == list(range(20))
    assert os.getpid() not in found.values()


@pytest.mark.distributed
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.tasks._CONNECT_SECONDS", 1)

    with pytest.raises(LaunchError, match="no Dask scheduler answers there"):
        list(results(in_process, [1], scheduler="tcp://127.0.0.1:1"))


def killed_at_five(item: int) -> int:
    if item == 5:
        os.kill(os.getpid(), 9)
    return item


@pytest.mark.slow
@pytest.mark.distributed
def test_an_item_at_which_workers_die_costs_itself_alone() -> None:
    found = sorted(results(killed_at_five, range(12), workers=2, lost=lambda item, said: -item))

    assert found == [-5, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
