"""Network namespaces without names: each lives as long as a descriptor of it is open, or a process in it.

Nothing of them is found by ``ip netns``, and nothing is left of them when the process that made them is
gone, however it ended: the kernel takes them away, with all devices in them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.errors import LaunchError, UsageError

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of ``linux/sched.h``."""


@dataclass(frozen=True)
class Namespace:
    """A network namespace that this process holds open; make one by `Namespace.new`.

    Attributes:
        descriptor: of it, in this process.
    """

    descriptor: int

    @classmethod
    def new(cls) -> Namespace:
        """Return a new namespace, in which there is nothing but a loopback device.

        Raises:
            UsageError: this process may not make one.
        """
        made: list[int | OSError] = []

        def unshare() -> None:  # concerns the calling thread alone
            try:
                _call("unshare", _NEW_NETWORK)
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=unshare)
        thread.start()
        thread.join()
        (found,) = made
        if isinstance(found, OSError):
            raise UsageError(f"no network namespace can be made here: {found.strerror}") from found
        return cls(found)

    @property
    def path(self) -> str:
        """Return where any process of this machine finds it, as long as this process holds it open."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in it while the body runs; threads of before stay where they are, processes begin in it."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            enter(self.path)
            yield
        finally:
            _call("setns", before, _NEW_NETWORK)
            os.close(before)

    def run(self, program: str, lines: list[str]) -> None:
        """Let ``ip``, ``tc`` or ``bridge`` carry out *lines* in it, all at once.

        Raises:
            LaunchError: one of them cannot be carried out; says which and why.
        """
        with self.entered():
            done = subprocess.run(
                [program, "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True
            )
        if done.returncode:
            said = " ".join(done.stderr.split())
            raise LaunchError(
                f"{program} could not make the network: {said}; it was to do: {'; '.join(lines)}"
            )

    def configure(self, values: dict[str, str | int]) -> None:
        """Set kernel parameters, by their paths below ``/proc/sys/net``; those that are missing stay so."""
        with self.entered():
            for path, value in values.items():
                with contextlib.suppress(FileNotFoundError), open(f"/proc/sys/net/{path}", "w") as file:
                    file.write(str(value))


def enter(path: str) -> None:
    """Move the calling thread into the namespace at *path*."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _call("setns", descriptor, _NEW_NETWORK)
    finally:
        os.close(descriptor)


def _call(function: str, *arguments: int) -> None:
    """Call a *function* of the C library, which Python has under its name from 3.12 on.

    Raises:
        OSError: it failed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)
