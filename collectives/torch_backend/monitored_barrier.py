"""Monitored barrier: one that says which ranks did not come in time, and leaves the group usable.

Ranks leave word in the group's store, so that no message is lost when one is missing, and rank 0, which looks
for it, tells the others how it went.

Source: ``ProcessGroupGloo::monitoredBarrier`` of torch, whose words the errors have.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from collectives.errors import CollectiveTimeoutError
from collectives.execution.clock import Clock

_PASSED = b"passed"


class MonitoredBarrier:
    """The monitored barriers of one group, on one rank.

    Args:
        store: shared by the ranks of the group.
        rank: this rank.
        world_size: number of ranks.
        clock: the time in which this rank lives.
    """

    def __init__(self, store: Any, rank: int, world_size: int, clock: Clock) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._clock = clock
        self._num_calls = 0

    def pass_(self, timeout: timedelta, wait_all_ranks: bool) -> None:
        """Return when every rank has called.

        Args:
            timeout: within which.
            wait_all_ranks: name all ranks that did not come, and not only the first.

        Raises:
            CollectiveTimeoutError: a rank did not come in time; or, on the others, word of rank 0.
        """
        name = f"monitored_barrier/{self._num_calls}"
        self._num_calls += 1
        if self._rank > 0:
            self._report(name, timeout)
            return
        try:
            self._look_for_all(name, timeout, wait_all_ranks)
        except CollectiveTimeoutError as error:
            self._store.set(f"{name}/verdict", str(error))
            raise
        self._store.set(f"{name}/verdict", _PASSED)

    def _report(self, name: str, timeout: timedelta) -> None:
        """Leave word, and wait for that of rank 0."""
        self._store.set(f"{name}/{self._rank}", b"")
        came = self._came(f"{name}/verdict", timeout)
        verdict = self._store.get(f"{name}/verdict") if came else b"no word of rank 0"
        if verdict != _PASSED:
            raise CollectiveTimeoutError(
                f"[Rank {self._rank}]: Rank {self._rank} successfully reached monitoredBarrier, but received "
                f"errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
                f"Original exception: {bytes(verdict).decode()}"
            )

    def _look_for_all(self, name: str, timeout: timedelta, wait_all_ranks: bool) -> None:
        """Look for word of every rank, in their order."""
        millis = round(timeout / timedelta(milliseconds=1))
        began = self._clock.now_ps()
        missing: list[int] = []
        for peer in range(1, self._world_size):
            left = timeout - timedelta(microseconds=(self._clock.now_ps() - began) / 1e6)
            if left <= timedelta() and not wait_all_ranks:
                passed = ", ".join(map(str, range(1, peer)))
                raise CollectiveTimeoutError(
                    f"[Rank 0]: Rank 0 timed out in monitoredBarrier after {millis} ms. "
                    + (
                        f"Successfully processed ranks: {passed}"
                        if passed
                        else "No ranks successfully processed"
                    )
                )
            if self._came(f"{name}/{peer}", left):
                continue
            missing.append(peer)
            if not wait_all_ranks:
                break

        if missing:
            who = f"Ranks {', '.join(map(str, missing))}" if wait_all_ranks else f"Rank {missing[0]}"
            raise CollectiveTimeoutError(f"[Rank 0]: {who} failed to pass monitoredBarrier in {millis} ms")

    def _came(self, key: str, timeout: timedelta) -> bool:
        """Return whether *key* is set within *timeout*."""
        if self._store.check([key]):
            return True
        if timeout < timedelta(milliseconds=1):
            return False
        try:
            self._store.wait([key], timeout)
        except RuntimeError:  # torch's stores say so in several ways
            return bool(self._store.check([key]))
        return True
