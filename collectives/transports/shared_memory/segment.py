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
from pathlib import Path
from typing import Any

import torch

from collectives.errors import NotSupportedError

SIZE = 1 << 37
"""Bytes of address space of a part, of which only what is used takes memory."""

WORD = 8
LINE = 64
"""Bytes of a line of the cache, which two ranks do not write to at the same time."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Part:
    """The memory of one rank.

    Attributes:
        words: as whole numbers of 64 bits.
        data: as bytes, a tensor.
        address: where it begins in this process.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            self.memory = mmap.mmap(descriptor, SIZE)
        except OSError as error:
            raise NotSupportedError(
                f"transport shm: {SIZE >> 30} GiB of address space for each rank were refused "
                f"({error.strerror}); is there a limit on it (ulimit -v)?"
            ) from error
        self.words = memoryview(self.memory).cast("B").cast("q")
        self.data = torch.frombuffer(self.memory, dtype=torch.uint8)
        self.address = self.data.data_ptr()
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

    def write(self, start: int, data: torch.Tensor, nbytes: int) -> None:
        """Write *data*, contiguous, from *start* on."""
        ctypes.memmove(self.address + start, data.data_ptr(), nbytes)

    def read(self, start: int, data: torch.Tensor, nbytes: int) -> None:
        """Read what is there from *start* on into *data*, contiguous."""
        ctypes.memmove(data.data_ptr(), self.address + start, nbytes)


class Segment:
    """The parts of all ranks of a group.

    Args:
        store: shared by all ranks.
        prefix: of the keys, equal on all ranks and unlike that of any other segment.
        rank: this rank.
        world_size: number of ranks.

    Raises:
        NotSupportedError: the ranks are not on one host, or cannot open each other's memory.
    """

    def __init__(self, store: Any, prefix: str, rank: int, world_size: int) -> None:
        check_machine()
        self.rank = rank
        descriptor = os.memfd_create(f"collectives, rank {rank}", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SIZE)
        own = [_BOOT.read_text().strip(), os.getpid(), descriptor, os.fstat(descriptor).st_ino]
        store.set(f"{prefix}/{rank}", json.dumps(own))
        self.parts: list[Part] = []
        self._ended = select.poll()
        self._rank_of: dict[int, int] = {}
        for peer in range(world_size):
            if peer == rank:
                self.parts.append(Part(descriptor))
                continue
            said = json.loads(store.get(f"{prefix}/{peer}"))
            opened = _open(peer, said, own)
            self.parts.append(Part(opened))
            os.close(opened)
            process = os.pidfd_open(said[1])
            self._ended.register(process, select.POLLIN)
            self._rank_of[process] = peer
        if store.add(f"{prefix}/mapped", 1) == world_size:
            store.set(f"{prefix}/all mapped", "")
        store.wait([f"{prefix}/all mapped"])
        os.close(descriptor)

    @property
    def own(self) -> Part:
        """The part of this rank."""
        return self.parts[self.rank]

    def ended(self) -> set[int]:
        """Return the ranks whose processes have ended."""
        return {self._rank_of[process] for process, _ in self._ended.poll(0)}

    def __del__(self) -> None:
        for process in getattr(self, "_rank_of", ()):
            os.close(process)


def check_machine() -> None:
    """Check that this machine can share memory as it is needed.

    Raises:
        NotSupportedError: it cannot.
    """
    machine, system = platform.machine(), platform.system()
    if machine not in ("x86_64", "AMD64") or system != "Linux":
        raise NotSupportedError(
            f"transport shm needs Linux on x86-64, which orders what is stored; this is {system} on "
            f"{machine}: use gloo"
        )


def _open(peer: int, said: list[Any], own: list[Any]) -> int:
    boot, process, descriptor, file = said
    if boot != own[0]:
        raise NotSupportedError(
            f"transport shm is for ranks of one host, and rank {peer} is on another than this: use gloo"
        )
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NotSupportedError(
            f"transport shm: the memory of rank {peer}, process {process}, cannot be opened "
            f"({error.strerror}): ranks must run as one user in one container; use gloo"
        ) from error
    if os.fstat(opened).st_ino != file:
        os.close(opened)
        raise NotSupportedError(
            f"transport shm: process {process} is not rank {peer} here, so the ranks are in several "
            "containers: use gloo"
        )
    return opened
