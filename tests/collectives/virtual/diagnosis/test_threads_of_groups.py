"""Threads of a rank that use one group: noticed exactly where nothing says which of them calls first."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from tests.collectives.virtual.clusters import mistakes


def reduce(group: dist.ProcessGroup | None = None) -> None:
    dist.all_reduce(torch.ones(2), group=group)


def beside(other: Callable[[], object], *own: Callable[[], object]) -> None:
    """Do *own*, one after another, while a thread does *other*, and wait for its end."""
    thread = threading.Thread(target=other)
    thread.start()
    for call in own:
        call()
    thread.join()


def thread_beside() -> None:
    beside(reduce, reduce)


def thread_of_a_pool_beside() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(reduce).result()
        saved = pool.submit(reduce)
        reduce()
        saved.result()


def handed_on_and_then_beside() -> None:
    jobs = queue.Queue()
    beside(lambda: (jobs.get(), reduce()), reduce, lambda: jobs.put(0), reduce)


def with_a_lock_alone() -> None:
    lock = threading.Lock()

    def locked():
        with lock:
            reduce()

    beside(locked, locked)


def one_after_another() -> None:
    reduce()
    beside(reduce)
    reduce()


def handed_on() -> None:
    jobs = queue.Queue()
    beside(lambda: (jobs.get(), reduce()), reduce, lambda: jobs.put(0))


def told_by_an_event() -> None:
    done = threading.Event()
    beside(lambda: (reduce(), done.set()), done.wait, reduce)


def results_awaited() -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            reduce()
            pool.submit(reduce).result()


def met_at_a_barrier() -> None:
    barrier = threading.Barrier(2)
    beside(lambda: (barrier.wait(), reduce()), reduce, barrier.wait)


def group_of_its_own() -> None:
    own = dist.new_group()
    beside(lambda: reduce(own), reduce)


class Lock:
    """A lock of the script's own, which takes no weak reference."""

    __slots__ = ("_lock", "acquire", "release")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


def with_a_condition_of_its_own_lock() -> None:
    condition = threading.Condition(Lock())
    beside(reduce)
    with condition:
        reduce()


AT_ONCE = [thread_beside, thread_of_a_pool_beside, handed_on_and_then_beside, with_a_lock_alone]
IN_ORDER = [
    one_after_another, handed_on, told_by_an_event, results_awaited, met_at_a_barrier, group_of_its_own,
    with_a_condition_of_its_own_lock,
]  # fmt: skip


@pytest.mark.parametrize("script", [*AT_ONCE, *IN_ORDER], ids=lambda script: script.__name__)
def test_a_group_of_two_threads_is_noticed_exactly_where_neither_waits(script):
    noticed = "ranks 0, 1: one thread calls all_reduce of a group here and another"

    assert (noticed in mistakes(lambda rank: script())) is (script in AT_ONCE)
