"""Key-value store of the rank threads, as a launcher's rendezvous has one."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.world import VirtualWorld
from sim.cluster import RankThread, Thing, Touch
from sim.errors import WaitTimeoutError
from sim.units import SECOND

_KEYS = Thing("the number of keys in the store")


class VirtualStore(Store):
    """The key-value store of the rank threads; waiting for a key is waiting in virtual time.

    It stands for the rendezvous of a launcher: only waiting takes time, messages to it do not.  Who is
    first of those that come at the same time is a choice of the run's order.  On a GPU it is the host that
    comes and waits.
    """

    def __init__(self, rank_thread: RankThread) -> None:
        super().__init__()
        self._rank_thread = rank_thread
        self._world = VirtualWorld.of(rank_thread.cluster)
        self._choices = rank_thread.cluster.choices

    @staticmethod
    def of(rank_thread: RankThread) -> Store:
        """Return the store of this rank; it has one."""
        stores = VirtualWorld.of(rank_thread.cluster).stores
        if rank_thread.rank not in stores:
            stores[rank_thread.rank] = VirtualStore(rank_thread)
        return stores[rank_thread.rank]

    def set(self, key: str, value: str | bytes) -> None:
        """Set *key*, and wake whoever waits for it."""
        self._catch_up()
        self._touch(key, Touch.WRITE)
        self._put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        """Return the value of *key*, once it has one."""
        self.wait([key])
        self._touch(key, Touch.READ)
        return self._world.values[key]

    def add(self, key: str, value: int) -> int:
        """Add to the number under *key*, from 0, and return the sum."""
        self._catch_up()
        self._touch(key, Touch.WRITE)
        total = int(self._world.values.get(key, b"0")) + value
        self._put(key, str(total).encode())
        return total

    def check(self, keys: list[str]) -> bool:
        """Return whether all *keys* are set."""
        self._catch_up()
        for key in keys:
            self._touch(key, Touch.READ)
        absent = next((key for key in keys if key not in self._world.values), None)
        if absent is not None:
            event = self._world.awaited.setdefault(absent, self._rank_thread.cluster.env.event())
            self._rank_thread.look_again(event, partial("key {!r} of the store".format, absent))
        return absent is None

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Return when all *keys* are set.

        Raises:
            DistStoreError: they are not within *timeout*; None: within that of the store, if they ever come,
                and else a deadlock is found instead.
        """
        self._catch_up()
        clock, began_ps = self._rank_thread, self._now_ps()
        limit: timedelta = self.timeout if timeout is None else timeout  # type: ignore[attr-defined]  # no stub
        limit_ps = began_ps + round(limit.total_seconds() * SECOND)
        for key in keys:
            self._touch(key, Touch.READ)
            while key not in self._world.values:
                event = self._world.awaited.setdefault(key, clock.cluster.env.event())
                left_ps = None if timeout is None else max(0, limit_ps - clock.now_ps())
                try:
                    clock.wait(event, partial("key {!r} of the store".format, key), left_ps)
                except WaitTimeoutError:
                    break
            since_ps = self._world.values_since_ps.get(key)
            self._stay_until(limit_ps if since_ps is None else min(since_ps, limit_ps))
            if since_ps is None or since_ps > limit_ps:
                after = f"{(limit_ps - began_ps) * 1000 // SECOND}ms of virtual time"
                raise DistStoreError(f"wait timeout after {after}, keys: {', '.join(keys)}")

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set *key* to *desired* if it holds *expected*, or is not set and that is empty."""
        expected = expected.encode() if isinstance(expected, str) else bytes(expected)
        self._catch_up()
        self._touch(key, Touch.WRITE)
        current = self._world.values.get(key)
        if current == expected or (current is None and not expected):
            self._put(key, desired.encode() if isinstance(desired, str) else bytes(desired))
        return self._world.values.get(key, expected)

    def delete_key(self, key: str) -> bool:
        """Remove *key*; return whether it was set."""
        self._catch_up()
        self._touch(key, Touch.WRITE)
        self._world.values_since_ps.pop(key, None)
        return self._world.values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Return how many keys are set."""
        self._catch_up()
        if self._choices is not None:
            self._choices.touch(_KEYS, Touch.READ)
        return len(self._world.values)

    def clone(self) -> VirtualStore:
        """Return this store; it has no connection of its own."""
        return self

    def _put(self, key: str, value: bytes) -> None:
        """Set *key* at once: between what it depends on and this no other rank may run."""
        self._world.values[key] = value
        self._world.values_since_ps.setdefault(key, self._now_ps())
        if key in self._world.awaited:
            self._world.awaited.pop(key).succeed()

    def _touch(self, key: str, how: Touch) -> None:
        """Tell the run's order of it; who writes *key* may change how many keys there are."""
        if self._choices is not None:
            self._choices.touch(Thing(f"key {key!r} of the store"), how)
            if how is Touch.WRITE:
                self._choices.touch(_KEYS, Touch.CONTRIBUTE)

    def _now_ps(self) -> int:
        gpu = current_gpu()
        return self._rank_thread.now_ps() if gpu is None else gpu.now_ps()

    def _stay_until(self, time_ps: int) -> None:
        """Let the host of a GPU wait until then, as a rank without one has done."""
        gpu = current_gpu()
        if gpu is not None and time_ps > gpu.now_ps():
            gpu.host_work("wait for the store", time_ps - gpu.now_ps())

    def _catch_up(self) -> None:
        """Let all that happens earlier happen first, so that keys appear in the order of time."""
        if self._world.store_delay_ps is not None:
            delay_ps = self._world.store_delay_ps(self._rank_thread.rank)
            self._rank_thread.stand_at(self._now_ps() + delay_ps)
            self._stay_until(self._now_ps() + delay_ps)
        self._rank_thread.stand_at(self._now_ps())
        self._rank_thread.poll(self._rank_thread.cluster.env.event())
