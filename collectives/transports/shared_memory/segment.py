"""Memory that the ranks of one host share: a part for each, which it makes and all have mapped.

A part is an anonymous file (``memfd_create``) that the others open through ``/proc``, so it has no name,
needs no room in ``/dev/shm``, and is gone with the last process that has it, however that ends.  Pages
are taken when they are first written to.

Words of 64 bits are written whole, and in the order of the program: that is what x86-64 promises of
stores, and all that mailboxes rely on.  Other processors are refused.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch

from collectives.errors import CollectiveTimeoutError, NotSupportedError
from collectives.transports.store_words import word

SIZE = 1 << 34
"""Bytes of address space of a part, of which only what is used takes memory: a process can have 8,000."""

WORD = 8
LINE = 64
"""Bytes of a line of the cache, which two ranks do not write to at the same time."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_LIBC.mmap.restype = ctypes.c_size_t
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_FAILED = ctypes.c_size_t(-1).value


class NoSharedMemoryError(NotSupportedError):
    """The ranks of a group cannot share memory, which all of them are told."""


class Part:
    """The memory of one rank.

    Attributes:
        words: as whole numbers of 64 bits.
        data: as bytes, a tensor.
        address: where it begins in this process.
    """

    def __init__(self, descriptor: int) -> None:
        mapped = _LIBC.mmap(None, SIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
        if mapped == _FAILED:
            raise NoSharedMemoryError(
                f"transport shm: {SIZE >> 30} GiB of address space for each rank were refused "
                f"({os.strerror(ctypes.get_errno())}); is there a limit on it (ulimit -v), or does this "
                "process keep thousands of communicators?"
            )
        self.address: int = mapped
        self.memory = (ctypes.c_char * SIZE).from_address(mapped)  # what reads there keeps it
        weakref.finalize(self.memory, _LIBC.munmap, mapped, SIZE).atexit = False
        self.data = torch.frombuffer(self.memory, dtype=torch.uint8)
        words: Any = self.data.view(torch.int64).numpy()
        self.words = memoryview(words)
        self._views: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}

    def view(self, start: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        """Return *nbytes* from *start* on, as elements of *dtype*."""
        key = start, nbytes, dtype
        found = self._views.get(key)
        if found is None:
            if len(self._views) > 1024:
                self._views.clear()
            found = self._views[key] = self.data[start : start + nbytes].view(dtype)
        return found

    def place_of(self, data: torch.Tensor) -> int | None:
        """Return where *data* is in this part, or None if it is elsewhere."""
        start = data.data_ptr() - self.address
        return start if 0 <= start < SIZE else None

    def write(self, start: int, data: torch.Tensor, nbytes: int) -> None:
        """Write *data*, contiguous, from *start* on."""
        ctypes.memmove(self.address + start, data.data_ptr(), nbytes)

    def read(self, start: int, data: torch.Tensor, nbytes: int) -> None:
        """Read what is there from *start* on into *data*, contiguous."""
        ctypes.memmove(data.data_ptr(), self.address + start, nbytes)


class Segment:
    """The parts of the ranks of a group that are on this host.

    Args:
        store: shared by all ranks.
        prefix: of the keys, equal on all ranks and unlike that of any other segment.
        rank: this rank.
        world_size: number of ranks.
        timeout: seconds that this waits for the others.

    Attributes:
        parts: by rank.
        hosts: of each rank, that on which it is.

    Raises:
        NoSharedMemoryError: on all ranks alike: no two of them are on one host, or some cannot open each
            other's memory.
        CollectiveTimeoutError: a rank did not come.
    """

    def __init__(self, store: Any, prefix: str, rank: int, world_size: int, timeout: float) -> None:
        self.prefix = prefix
        self.rank = rank
        self.world_size = world_size
        self.parts: dict[int, Part] = {}
        self._ended = select.poll()
        self._rank_of: dict[int, int] = {}
        with ExitStack() as open_files:
            agreed = partial(_agreed, store, rank, world_size, timeout, self.ended)
            made = agreed(f"{prefix}/made", lambda: _make(rank, open_files))
            agreed(f"{prefix}/mapped", lambda: self._map(made))

    def _map(self, made: list[_Made]) -> None:
        self.hosts = tuple(own.boot for own in made)
        if len(set(self.hosts)) == len(made) > 1:
            raise NoSharedMemoryError(
                f"transport shm is for ranks of which some share a host, and these are on {len(made)} hosts: "
                "use gloo"
            )
        for peer, there in enumerate(made):
            if there.boot != made[self.rank].boot:
                continue
            if peer != self.rank:
                process = _watch(peer, there.process)
                self._rank_of[process] = peer
                self._ended.register(process, select.POLLIN)
            try:
                with _opened(peer, there) as descriptor:
                    self.parts[peer] = Part(descriptor)
            except NoSharedMemoryError:
                if peer in self.ended():
                    raise _has_ended(peer) from None
                raise

    @property
    def ranks_per_host(self) -> int | None:
        """How many ranks are on each host, if they are equally many and follow each other."""
        lengths = [len(list(own)) for _, own in groupby(self.hosts)]
        return lengths[0] if len(lengths) == len(set(self.hosts)) and len(set(lengths)) == 1 else None

    @property
    def far(self) -> list[int]:
        """The ranks on other hosts."""
        return [peer for peer in range(self.world_size) if peer not in self.parts]

    @property
    def own(self) -> Part:
        """The part of this rank."""
        return self.parts[self.rank]

    def ended(self) -> set[int]:
        """Return the ranks whose processes have ended."""
        return {self._rank_of[process] for process, _ in self._ended.poll(0)}

    def __del__(self) -> None:
        for process in self._rank_of:
            os.close(process)


class _Made(NamedTuple):
    """Where a rank's memory is: on which host, in which process, and which of its files, by number."""

    boot: str
    process: int
    descriptor: int
    file: int


def _agreed(
    store: Any,
    rank: int,
    world_size: int,
    timeout: float,
    ended: Callable[[], set[int]],
    key: str,
    act: Callable[[], _Made | None],
) -> list[_Made]:
    """Return what *act* returns on all ranks; *ended* says which processes have ended, as far as is known.

    Raises:
        NoSharedMemoryError: a rank could not do so, or has ended; it is raised on all.
        CollectiveTimeoutError: a rank did not come within *timeout* seconds.
    """
    deadline, refused = time.monotonic() + timeout, f"{key}/refused"

    def refuse(error: NoSharedMemoryError) -> NoSharedMemoryError:
        """Say that this rank refuses, unless another has, which may be why; return what to raise."""
        own = json.dumps([rank, str(error)])
        who, why = json.loads(store.compare_set(refused, "", own).decode())
        return error if who == rank else _refused(who, why)

    def look(peer: int) -> None:
        """Raise where *peer* need not be waited for."""
        if store.check([refused]):
            raise _refused(*json.loads(store.get(refused).decode()))
        if peer in ended() and not store.check([f"{key}/{peer}"]):
            raise refuse(_has_ended(peer))

    try:
        done = act()
    except NoSharedMemoryError as error:
        raise refuse(error) from error.__cause__
    store.set(f"{key}/{rank}", json.dumps(done))
    of_all = []
    for peer in range(world_size):
        try:
            theirs = word(store, f"{key}/{peer}", deadline - time.monotonic(), partial(look, peer))
        except NoSharedMemoryError:
            raise
        except (TimeoutError, RuntimeError) as error:
            raise CollectiveTimeoutError(
                f"rank {rank}: rank {peer} did not come to share memory in {timeout:g} s: killed, stalled, "
                f"or never called it ({str(error).splitlines()[0]})"
            ) from error
        of_all.append(_Made(*json.loads(theirs) or ("", 0, 0, 0)))
    return of_all


def _has_ended(peer: int) -> NoSharedMemoryError:
    return NoSharedMemoryError(f"transport shm: the process of rank {peer} has ended before it shared memory")


def _refused(rank: int, why: str) -> NoSharedMemoryError:
    return NoSharedMemoryError(f"rank {rank} refuses: {why}")


def _make(rank: int, open_files: ExitStack) -> _Made:
    """Make the memory of this rank, which stays open until *open_files* are closed."""
    check_machine()
    try:
        descriptor = os.memfd_create(f"collectives, rank {rank}", os.MFD_CLOEXEC)
        open_files.callback(os.close, descriptor)
        os.ftruncate(descriptor, SIZE)
    except OSError as error:
        raise NoSharedMemoryError(
            f"transport shm: a file of {SIZE >> 30} GiB in memory, of which only what is used takes room, "
            f"was refused ({error.strerror}); is there a limit on files (ulimit -f, ulimit -n)? Or use gloo"
        ) from error
    return _Made(_host(), os.getpid(), descriptor, os.fstat(descriptor).st_ino)


def _host() -> str:
    """Return what tells this host from others: the number of its boot."""
    try:
        return _BOOT.read_text().strip()
    except OSError as error:
        raise NoSharedMemoryError(
            f"transport shm: {_BOOT}, by which ranks know their host, cannot be read ({error.strerror}): "
            "use gloo"
        ) from error


def _watch(peer: int, process: int) -> int:
    """Return a file that can be read when *process* has ended."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError as error:
        raise NoSharedMemoryError(
            f"transport shm: rank {peer}, process {process}, is not here: it has ended, or the ranks are in "
            "several containers, and then use gloo"
        ) from error
    except OSError as error:
        raise NoSharedMemoryError(
            f"transport shm: rank {peer}, process {process}, cannot be watched ({error.strerror}); is there "
            "a limit on files (ulimit -n)? Or use gloo"
        ) from error


@contextmanager
def _opened(peer: int, there: _Made) -> Iterator[int]:
    """Give the file of rank *peer*, open while the body runs."""
    try:
        opened = os.open(f"/proc/{there.process}/fd/{there.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoSharedMemoryError(
            f"transport shm: the memory of rank {peer}, process {there.process}, cannot be opened "
            f"({error.strerror}): it is ending, or ranks are of several users or containers; use gloo"
        ) from error
    try:
        if os.fstat(opened).st_ino != there.file:
            raise NoSharedMemoryError(
                f"transport shm: process {there.process} is not rank {peer} here, so the ranks are in "
                "several containers: use gloo"
            )
        yield opened
    finally:
        os.close(opened)


def check_machine() -> None:
    """Check that this machine can share memory as it is needed.

    Raises:
        NoSharedMemoryError: it cannot.
    """
    machine, system = platform.machine(), platform.system()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        raise NoSharedMemoryError(
            f"transport shm needs Linux on x86-64, which orders what is stored; this is {system} on "
            f"{machine}: use gloo"
        )
