"""One rank of a group does wrong, and every rank tells what it saw: what `test_faults.py` runs on processes.

All ranks make the same calls, drawn from the scenario's seed, until one of them goes wrong.
"""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from collectives import CollectiveError, connect
from tests.distributed.hosts import as_if_on_host

TIMEOUT = 2.0
"""Seconds within which every collective of a scenario completes or raises."""

MISMATCHES = ("collective", "size", "dtype", "op", "root", "algorithm")
ABSENCES = ("nothing", "returns", "raises")
SIGNALS = {"killed": "kill -KILL {pid}", "stalled": "kill -STOP {pid}; sleep {pause}; kill -CONT {pid}"}
"""What a shell does to the culprit, after a while."""


@dataclass(frozen=True)
class Scenario:
    """What goes wrong, where and when.

    Attributes:
        fault: one of `MISMATCHES`, `ABSENCES` or `SIGNALS`.
        way: an algorithm, by itself or as in ``ring, shm`` and ``ring, two hosts``; ``native``; ``native,
            checked``; or ``testbed``, by plain torch.distributed.
        culprit: the rank that goes wrong.
        call: before or instead of which call it does, unless by a signal.
        delay: after how many seconds a signal is sent.
        seed: of the sizes, and of which calls are asynchronous.
    """

    fault: str
    way: str
    culprit: int
    call: int
    delay: float
    seed: int


@dataclass(frozen=True)
class Account:
    """What one rank saw.

    Attributes:
        error: type and message of the error of the call that failed; "" if none did.
        seconds: how long that call took to fail.
        wrong: how many calls were reported as complete and gave a wrong result.
        completed: how many were complete.
        next_error: of the call after that.
        next_seconds: how long the next call took to fail.
    """

    error: str
    seconds: float
    wrong: int
    completed: int
    next_error: str
    next_seconds: float


class OwnError(Exception):
    """What the code of a rank raises, in its own affairs."""


def go_through(
    rank: int, world_size: int, scenario: Scenario, begun: Callable[[], None] = lambda: None
) -> Account:
    """Make calls until one fails; the culprit does what the scenario says, once all have *begun*."""
    ranks = _Ranks(rank, world_size, scenario)
    ranks.communicator.barrier()
    begun()
    if rank == scenario.culprit and scenario.fault in SIGNALS:
        command = SIGNALS[scenario.fault].format(pid=os.getpid(), pause=TIMEOUT + 4)
        subprocess.Popen(["sh", "-c", f"sleep {scenario.delay}; {command}"])
    account = ranks.call_until_one_fails()
    ranks.close()
    return account


class _Ranks:
    """This rank's side of a scenario."""

    def __init__(self, rank: int, world_size: int, scenario: Scenario) -> None:
        self.rank = rank
        self.world_size = world_size
        self.scenario = scenario
        self.guilty = rank == scenario.culprit
        self.chance = random.Random(scenario.seed)
        self.wrong = self.completed = 0
        algorithm, _, how = scenario.way.partition(", ")
        own = "testbed" if algorithm == "testbed" else "gloo"
        self.group = dist.new_group(backend=own, timeout=timedelta(seconds=TIMEOUT))
        if algorithm == "testbed":
            self.communicator = _Torch(self.group)
        else:
            if self.guilty and scenario.fault == "algorithm":
                algorithm = "recursive_doubling" if algorithm != "recursive_doubling" else "ring"
            transport = "shm" if how in ("shm", "two hosts") else None
            with as_if_on_host(rank % 2) if how == "two hosts" else contextlib.nullcontext():
                self.communicator = connect(
                    self.group, algorithm, transport=transport, timeout=TIMEOUT, check=how == "checked"
                )

    def call_until_one_fails(self) -> Account:
        number = 0
        try:
            while True:
                checks = []
                in_flight = 1 + self.chance.randrange(3)
                for n in range(in_flight):
                    began = time.monotonic()
                    check = self._call(number + n, in_flight > 1)
                    if check is None:
                        return Account("", 0.0, self.wrong, self.completed, "", 0.0)
                    checks.append(check)
                number += in_flight
                for check in checks:
                    began = time.monotonic()
                    check()
        except CollectiveError as error:
            seconds = time.monotonic() - began
            told = f"{type(error).__name__}: {error}"
        began = time.monotonic()
        try:
            self.communicator.all_reduce(torch.ones(4))
            following = ""
        except CollectiveError as error:
            following = f"{type(error).__name__}: {error}"
        return Account(told, seconds, self.wrong, self.completed, following, time.monotonic() - began)

    def _call(self, number: int, async_op: bool) -> Callable[[], None] | None:
        """Start a call; return what waits for it and checks its result, or None if this rank has left."""
        count = int(2 ** self.chance.uniform(10, 19))
        fault = self.scenario.fault if self.guilty and number == self.scenario.call else ""
        rooted = self.scenario.fault == "root"
        if fault in ABSENCES:
            return self._be_absent(fault)
        tensor = torch.full(
            (count + (fault == "size"),),
            self.rank + number,
            dtype=torch.float64 if fault == "dtype" else torch.float32,
        )
        if rooted or fault == "collective":
            root = int(fault == "root")
            work = self.communicator.broadcast(tensor, root, async_op=async_op)
            expected = number + root
        else:
            work = self.communicator.all_reduce(tensor, "max" if fault == "op" else "sum", async_op=async_op)
            expected = number * self.world_size + sum(range(self.world_size))

        def check():
            if async_op:
                work.wait()
            self.completed += 1
            self.wrong += not bool((tensor == expected).all())

        return check

    def _be_absent(self, fault: str) -> None:
        if fault == "raises":
            raise OwnError("not a matter of collectives")
        if fault == "nothing":
            dist.distributed_c10d._get_default_store().wait(["over"], timedelta(seconds=30))

    def close(self) -> None:
        """Tell a rank that does nothing that the others are done, and give the group back."""
        with contextlib.suppress(dist.DistNetworkError):  # the store may be gone
            dist.distributed_c10d._get_default_store().set("over", "")
        dist.destroy_process_group(self.group)


class _Torch:
    """As much of a `Communicator` as a scenario needs, in calls of torch.distributed."""

    def __init__(self, group) -> None:
        self.group = group

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum", async_op: bool = False):
        return dist.all_reduce(tensor, getattr(dist.ReduceOp, op.upper()), self.group, async_op)

    def broadcast(self, tensor: torch.Tensor, root: int, async_op: bool = False):
        return dist.broadcast(tensor, root, self.group, async_op)

    def barrier(self) -> None:
        dist.barrier(self.group)


def lose_the_store(rank: int, world_size: int, scenario: Scenario) -> Account:
    """As `go_through`, in a default group whose store lives in the process of rank 0."""
    of_the_pool = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, world_size, True, wait_for_workers=False)
        of_the_pool.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(of_the_pool.get("port")), world_size, False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    return go_through(rank, world_size, scenario)


def call_late(rank: int, world_size: int) -> str:
    """Rank 1 never calls; rank 2, which alone waits for rank 1, calls late."""
    communicator = connect(algorithm="ring", timeout=TIMEOUT)
    communicator.barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait([f"rank {other} is done" for other in (0, 2, 3)], timedelta(seconds=30))
        return ""
    if rank == 2:
        time.sleep(TIMEOUT / 2)
    try:
        communicator.all_reduce(torch.ones(100))
    except CollectiveError as error:
        return str(error)
    finally:
        store.set(f"rank {rank} is done", "")
    return "no error"


def poll_in_vain(rank: int, world_size: int, way: str) -> str:
    """Rank 1 never calls; rank 0 asks again and again whether its call is complete."""
    ranks = _Ranks(rank, world_size, Scenario("", way, 1, 0, 0.0, 0))
    ranks.communicator.barrier()
    try:
        if rank == 0:
            work = ranks.communicator.all_reduce(torch.ones(100), async_op=True)
            while not work.is_completed():
                time.sleep(0.01)
        else:
            dist.distributed_c10d._get_default_store().wait(["over"], timedelta(seconds=30))
    except CollectiveError as error:
        return str(error)
    finally:
        ranks.close()
    return "no error"
