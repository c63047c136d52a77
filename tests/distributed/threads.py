"""Calls that threads of a rank make beside each other, drawn from seeds: what `test_threads.py` runs."""

import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

SIZES = (1, 6, 1_000, 30_000, 400_000)
"""Elements of each rank's part: in a slot of a mailbox, in the arena, and in several pieces."""

_WEIGHTS = (4, 4, 4, 2, 1)


def group_over(carrier: str, timeout: float = 120.0, ranks: Sequence[int] | None = None):
    """Return a new group: torch's own for ``gloo of torch``, else ours with messages that *carrier* takes."""
    limit = timedelta(seconds=timeout)
    if carrier == "gloo of torch":
        return dist.new_group(ranks, backend="gloo", timeout=limit)
    with carried_by(carrier):
        return dist.new_group(ranks, backend="testbed", timeout=limit)


@contextmanager
def carried_by(carrier: str) -> Iterator[None]:
    """Have *carrier* take the messages of groups that are made while the body runs."""
    os.environ["TESTBED_TRANSPORT"] = carrier
    try:
        yield
    finally:
        del os.environ["TESTBED_TRANSPORT"]


def in_threads(functions: Sequence[Callable[[], Any]], seconds: float = 190.0) -> list[Any]:
    """Return what each of *functions* returns, or the text of what it raises, each in a thread of its own."""
    results = [None] * len(functions)

    def run(number):
        try:
            results[number] = functions[number]()
        except Exception as error:
            results[number] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs beyond all time-outs"
    return results


class Caller:
    """Makes *num_calls* calls on *group*, the same on all ranks, and digests what they come to.

    Numbers are small and whole, so that every order of a sum gives the same bits.
    """

    def __init__(self, group, seed: int, num_calls: int) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.random = random.Random(seed)
        self.numbers = torch.Generator().manual_seed(1000 * seed + self.rank)
        self.num_calls = num_calls
        self.digest = hashlib.sha256()
        self.in_flight = []

    def run(self) -> str:
        calls = [
            self.all_reduce, self.broadcast, self.all_gather, self.all_to_all, self.message, self.barrier,
        ]  # fmt: skip
        for _ in range(self.num_calls):
            (size,) = self.random.choices(SIZES, _WEIGHTS)
            work, results = self.random.choice(calls)(size)
            self.in_flight.append((work, results))
            if self.random.random() < 0.7:
                self.complete()
        self.complete()
        return self.digest.hexdigest()

    def complete(self) -> None:
        """Wait for what is in flight, in some order."""
        order = self.in_flight[:]
        self.random.shuffle(order)
        for work, _ in order:
            work.wait()
        for _, results in self.in_flight:
            for result in results:
                self.digest.update(result.numpy().tobytes())
        self.in_flight.clear()

    def drawn(self, size: int) -> torch.Tensor:
        """Return *size* small whole numbers."""
        return torch.randint(-8, 8, (size,), generator=self.numbers).float()

    def all_reduce(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        tensor = self.drawn(size)
        return dist.all_reduce(tensor, group=self.group, async_op=True), [tensor]

    def broadcast(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        tensor, root = self.drawn(size), self.random.randrange(self.size)
        return dist.broadcast(tensor, group=self.group, group_src=root, async_op=True), [tensor]

    def all_gather(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        parts = [torch.empty(size) for _ in range(self.size)]
        return dist.all_gather(parts, self.drawn(size), self.group, async_op=True), parts

    def all_to_all(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        output = torch.empty(size * self.size)
        given = self.drawn(size * self.size)
        return dist.all_to_all_single(output, given, group=self.group, async_op=True), [output]

    def message(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        source, destination = self.random.sample(range(self.size), 2)
        tag, tensor = self.random.randrange(2), self.drawn(size)
        if self.rank == source:
            return dist.isend(tensor, group=self.group, group_dst=destination, tag=tag), []
        if self.rank == destination:
            return dist.irecv(tensor, group=self.group, group_src=source, tag=tag), [tensor]
        return _Nothing(), []

    def barrier(self, size: int) -> tuple[Any, list[torch.Tensor]]:
        dist.barrier(self.group)
        return _Nothing(), []


class _Nothing:
    """The part of a rank in what it takes no part in."""

    def wait(self) -> None:
        """Return."""
