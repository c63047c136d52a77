"""Processes of this machine, one per rank, as torchrun would start them, and what they are asked for.

However the launch ends (success, a rank that fails, a time-out, Ctrl-C, the death of this
process), no process stays behind.  Every rank runs in a session of its own, so Ctrl-C reaches
this process only, which then ends the ranks.  Ranks meet on the loopback, and Gloo talks there.

This module is also the program of the ranks that `ask_ranks` starts.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import typer

import testbed
from testbed.errors import LaunchError, UsageError, reporting_errors
from testbed.scripts import parent

T = TypeVar("T")
R = TypeVar("R")

ADDRESS = "127.0.0.1"
POLL_SECONDS = 0.02
GRACE_SECONDS = 2.0
TAIL_LINES = 12
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


def own_module(name: str) -> list[str]:
    """Return the command that runs the module *name* of ours, whatever lies in the current folder.

    With ``-m`` alone Python would take a user's ``testbed.py`` in our place; where the folder is that of our
    own packages, they may be found in no other way.
    """
    is_ours = Path(testbed.__file__).resolve().parents[1] == Path.cwd()
    return [sys.executable, *([] if is_ours else ["-P"]), "-u", "-m", name]


def leave_current_folder() -> None:
    """Take from ``sys.path`` the current folder, which ``-m`` has put there: a script's own comes instead."""
    if not sys.flags.safe_path:
        sys.path.pop(0)


class RankExitError(LaunchError):
    """A rank ended with an exit code other than 0.

    Attributes:
        rank: which one; the first that was seen to fail.
        said: whether its own error message has already been shown.
    """

    def __init__(self, message: str, rank: int, exit_code: int, said: bool) -> None:
        super().__init__(message)
        self.rank = rank
        self.said = said
        self.exit_code = exit_code if exit_code in (1, 2) else 1


def launch(
    command: Sequence[str],
    num_ranks: int,
    *,
    port: int | None = None,
    timeout: float | None = None,
    quiet: bool = False,
    files: Sequence[int] = (),
) -> None:
    """Run *command* once per rank and return when all have ended well.

    Args:
        command: program and arguments, the same for every rank.
        num_ranks: number of processes.
        port: where the ranks meet; by default one that is free.
        timeout: seconds that the whole run may take; None: no limit.
        quiet: whether what rank 0 prints is shown only if it fails, as of all others; by default it prints
            to this process's own stdout and stderr.
        files: open ones, by their numbers, that all ranks have open too.

    Raises:
        RankExitError: a rank ended with another code than 0; the message holds its last lines.
        LaunchError: *timeout* passed.
        UsageError: *port* is in use, or cannot be used, or there is no loopback.
    """
    check_loopback()
    master_port = free_port() if port is None else _checked_port(port)
    shared = {**os.environ, "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": ADDRESS, "MASTER_PORT": str(master_port), **_gloo_on_loopback(shared)}
    shared |= {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)}
    ranks: list[_Rank] = []
    try:
        for rank in range(num_ranks):
            variables = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            inherit = rank == 0 and not quiet
            ranks.append(_Rank(rank, command, inherit=inherit, env=variables, pass_fds=files))
        _watch(ranks, timeout)
    finally:
        _end(ranks)


class _Rank:
    """A process, and the file that receives what it prints unless it inherits our streams."""

    def __init__(self, rank: int, command: Sequence[str], *, inherit: bool, **options: Any) -> None:
        self.rank = rank
        self.output: IO[bytes] | None = None if inherit else tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [*_wrapper(), *command],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            start_new_session=True,
            **options,
        )

    def tail(self) -> list[str]:
        """Return the last lines that were printed."""
        if self.output is None:
            return []
        size = os.fstat(self.output.fileno()).st_size
        text = os.pread(self.output.fileno(), 1 << 16, max(0, size - (1 << 16)))
        return text.decode(errors="replace").strip().splitlines()[-TAIL_LINES:]


def _watch(ranks: Sequence[_Rank], timeout: float | None) -> None:
    started = time.monotonic()
    while True:
        codes = [rank.process.poll() for rank in ranks]
        failed = next((rank for rank, code in zip(ranks, codes, strict=True) if code), None)
        if failed is not None:
            raise _failure(failed, len(ranks))
        if None not in codes:
            return
        if timeout is not None and time.monotonic() - started > timeout:
            running = ", ".join(
                str(rank.rank) for rank, code in zip(ranks, codes, strict=True) if code is None
            )
            raise LaunchError(f"timed out after {timeout:g} s; still running: rank {running} of {len(ranks)}")
        time.sleep(POLL_SECONDS)


def _failure(rank: _Rank, num_ranks: int) -> RankExitError:
    code = rank.process.returncode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    lines = [f"rank {rank.rank} of {num_ranks} {how}", *(f"  {line}" for line in rank.tail())]
    return RankExitError("\n".join(lines), rank.rank, code, said=rank.output is None and code > 0)


def _end(ranks: Sequence[_Rank]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for rank in ranks:
            if rank.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(rank.process.pid, sent)
        deadline = time.monotonic() + GRACE_SECONDS
        for rank in ranks:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(max(0.0, deadline - time.monotonic()))
    for rank in ranks:
        if rank.output is not None:
            rank.output.close()


def _wrapper() -> list[str]:
    """Return what to put before a command so that it ends when this process dies, on Linux.

    A wrapper that replaces itself by the command, since code between fork and exec may hang in a
    process that has threads.
    """
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", parent.__file__, str(os.getpid())]


def _gloo_on_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what lets Gloo's ranks listen on the loopback, unless *environment* says where."""
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    return {} if _GLOO_INTERFACE in environment or not names else {_GLOO_INTERFACE: min(names)}


def check_loopback() -> None:
    """Check that processes of this machine can talk to each other; without a loopback they would wait.

    Raises:
        UsageError: they cannot, as where the loopback of a network namespace is down.
    """
    with socket.socket() as listener, socket.socket() as caller:
        try:
            listener.bind((ADDRESS, 0))
            listener.listen()
            caller.settimeout(1.0)
            caller.connect(listener.getsockname())
        except OSError as error:
            raise UsageError(
                f"processes of this machine cannot meet at {ADDRESS}: {error.strerror or error}; bring the "
                "loopback up (ip link set lo up), or let one process do it (--workers 1, --transport threads)"
            ) from None


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def _checked_port(port: int) -> int:
    if not 0 < port < 65536:
        raise UsageError(f"--port {port}: expected a port from 1 to 65535")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {port} is in use; name another with --port, or leave it out to get a free one"
                ) from None
            raise UsageError(f"port {port} cannot be used: {error.strerror}") from None
    return port


def joined() -> bool:
    """Return whether this process is one of those that torchrun has started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def joined_ranks(ranks: int | None) -> int | None:
    """Return how many ranks torchrun has started; None where it has started none.

    Raises:
        UsageError: the user has asked for another number.
    """
    world_size = int(os.environ["WORLD_SIZE"]) if joined() else None
    if world_size is not None and ranks not in (None, world_size):
        raise UsageError(f"--ranks {ranks}, but torchrun has started {world_size}; leave --ranks out")
    return world_size


def ranks_here(num_ranks: int) -> int:
    """Return how many of so many ranks share this machine: all, unless torchrun says otherwise."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks)) if joined() else num_ranks


def ask_ranks(work: Callable[[T], R | None], order: T, num_ranks: int, **options: Any) -> R:
    """Return what *work* makes of *order* on rank 0 of *num_ranks* processes, which all carry it out.

    Args:
        work: a function of a module of ours; what it takes and returns can be pickled.
        order: what is to be done.
        num_ranks: how many.
        options: further arguments of `launch`.

    Raises:
        RankExitError: a rank failed and has not said why.
        SystemExit: it has said so itself.
        LaunchError, UsageError: as of `launch`.
    """
    with tempfile.TemporaryFile() as ordered, tempfile.TemporaryFile() as answered:
        pickle.dump((work, order), ordered)
        ordered.flush()
        files = ordered.fileno(), answered.fileno()
        try:
            launch([*own_module(__spec__.name), *map(str, files)], num_ranks, files=files, **options)
        except RankExitError as error:
            if not error.said:
                raise
            raise SystemExit(error.exit_code) from None
        answered.seek(0)
        found: R = pickle.load(answered)
        return found


def _carry_out(ordered: int, answered: int) -> None:
    """Carry out what an open file orders, as a process of `ask_ranks`; rank 0 answers in another one."""
    said = os.pread(ordered, os.fstat(ordered).st_size, 0)  # as all ranks share the position in it
    work, order = pickle.loads(said)
    if (found := work(order)) is not None:
        with open(answered, "wb") as file:
            pickle.dump(found, file)


if __name__ == "__main__":
    try:
        reporting_errors(_carry_out)(*map(int, sys.argv[1:]))
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
