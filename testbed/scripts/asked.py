"""Ranks that carry something out for a command: processes that it starts, or those of torchrun that run it.

A module of ours is also a program for the ranks that `ask_ranks` starts: its main part calls `answer`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.scripts.launch import RankExitError, launch, own_module
from testbed.scripts.scratch_folder import scratch_folder


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


def ask_ranks(module: str, order: Any, num_ranks: int, **options: Any) -> bytes:
    """Return what rank 0 of *num_ranks* processes of *module* answers to *order*, a JSON value.

    Args:
        module: of ours, whose main part calls `answer`.
        order: what is to be done.
        num_ranks: how many.
        options: further arguments of `launch`.

    Raises:
        RankExitError: a rank failed and has not said why.
        SystemExit: it has said so itself.
        LaunchError, UsageError: as of `launch`.
    """
    with scratch_folder() as folder:
        answered = Path(folder) / "answer"
        command = [*own_module(module), str(answered), json.dumps(order)]
        try:
            launch(command, num_ranks, **options)
        except RankExitError as error:
            if not error.said:
                raise
            raise SystemExit(error.exit_code) from None
        return answered.read_bytes()


def answer(work: Callable[[Any], bytes | None]) -> None:
    """Carry out, as a process of `ask_ranks`, the *work* that was ordered; rank 0 returns the answer."""

    def carry_out(path: Path, order: str) -> None:
        if (found := work(json.loads(order))) is not None:
            path.write_bytes(found)

    path, order = sys.argv[1:]
    try:
        reporting_errors(carry_out)(Path(path), order)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
