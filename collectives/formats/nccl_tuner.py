"""Tables for NCCL's example tuner plugin, by which NCCL chooses what was fastest here.

Per collective the table says between which sizes which of NCCL's algorithms is to be taken.  An algorithm
of ours counts only if NCCL has the same one, and only at sizes at which it was timed; nothing is said
about smaller and larger ones, so NCCL decides there.

Source: ``plugins/tuner/example`` of NVIDIA/nccl.  Its parser takes a word that it does not know for
``allreduce``, ``ring`` or ``simple``, and breaks lines after 255 characters: so only words that it knows
are written, the header is a comment, and lines are short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap

from collectives.errors import NotSupportedError

COLUMNS = "collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"

NCCL_COLLECTIVES = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
}

NCCL_ALGORITHMS = {
    ("all_reduce", "ring"): "ring",
    ("all_reduce", "double_binary_tree"): "tree",
    ("all_gather", "ring"): "ring",
    ("all_gather", "pat"): "pat",
    ("reduce_scatter", "ring"): "ring",
    ("reduce_scatter", "pat"): "pat",
    ("broadcast", "chain"): "ring",
    ("reduce", "chain"): "ring",
}
"""Ours and NCCL's: its tree is a double binary tree, and its broadcast and reduce go along the ring."""

PROTOCOLS = ("simple", "ll", "ll128")

_WIDTH = 120


@dataclass(frozen=True, slots=True)
class TunerTiming:
    """How long *algorithm*, of a *collective* of *size_bytes*, took."""

    collective: str
    algorithm: str
    size_bytes: int
    time_us: float


@dataclass(frozen=True, slots=True)
class _Winner:
    """The fastest at a size: NCCL's name for it, and ours that was faster still, if any."""

    size_bytes: int
    algorithm: str
    faster: str | None


def to_tuner_csv(
    timings: Iterable[TunerTiming],
    num_ranks: int,
    *,
    protocol: str = "simple",
    channels: int = -1,
) -> str:
    """Return the table.

    Args:
        timings: what was timed, all on the same network.
        num_ranks: that took part; the table is for as many.
        protocol: ``simple``, ``ll`` or ``ll128``; times of ours do not tell them apart.
        channels: NCCL is to use; -1 for what the plugin makes of that (see ``docs/exchange.md``).

    Raises:
        NotSupportedError: nothing that was timed is an algorithm of NCCL's.
        ValueError: there is no such protocol.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    by_collective: defaultdict[str, list[TunerTiming]] = defaultdict(list)
    for timing in timings:
        by_collective[timing.collective].append(timing)
    winners = {collective: list(_winners(rows)) for collective, rows in by_collective.items()}
    lines = [
        f"{NCCL_COLLECTIVES[collective]},{low},{high},{algorithm},{protocol},{channels},-1,{num_ranks},-1,-1"
        for collective, found in winners.items()
        for low, high, algorithm in _ranges(found)
    ]
    if not lines:
        raise NotSupportedError(f"nothing that was timed is an algorithm of NCCL's; those are {_known()}")
    notes = [note for collective, rows in by_collective.items() for note in _notes(rows, winners[collective])]
    comments = [f"# {line}" for note in notes for line in wrap(note, _WIDTH)]
    return "\n".join([f"# {COLUMNS}", *comments, *lines]) + "\n"


def _name(timing: TunerTiming) -> str:
    """Return the algorithm without its parameters."""
    return timing.algorithm.partition(":")[0]


def _counterpart(timing: TunerTiming) -> str | None:
    return NCCL_ALGORITHMS.get((timing.collective, _name(timing)))


def _known() -> str:
    return ", ".join(f"{name} ({NCCL_COLLECTIVES[collective]})" for collective, name in NCCL_ALGORITHMS)


def _winners(rows: Iterable[TunerTiming]) -> Iterator[_Winner]:
    """Yield the winner at each size at which an algorithm of NCCL's was timed."""
    by_size: defaultdict[int, list[TunerTiming]] = defaultdict(list)
    for timing in rows:
        by_size[timing.size_bytes].append(timing)
    for size, timed in sorted(by_size.items()):
        theirs = [timing for timing in timed if _counterpart(timing)]
        if not theirs:
            continue
        best = min(theirs, key=lambda timing: timing.time_us)
        fastest = min(timed, key=lambda timing: timing.time_us)
        faster = _name(fastest) if fastest.time_us < best.time_us else None
        yield _Winner(size, _counterpart(best) or "", faster)


def _ranges(winners: list[_Winner]) -> Iterator[tuple[int, int, str]]:
    """Yield from where to where which algorithm wins; a range ends before the first size of the next."""
    start = 0
    for position, winner in enumerate(winners):
        following = winners[position + 1] if position + 1 < len(winners) else None
        if following is None:
            yield winners[start].size_bytes, winner.size_bytes, winner.algorithm
        elif following.algorithm != winner.algorithm:
            yield winners[start].size_bytes, following.size_bytes - 1, winner.algorithm
            start = position + 1


def _notes(rows: Iterable[TunerTiming], winners: list[_Winner]) -> Iterator[str]:
    """Yield what the table does not say."""
    rows = list(rows)
    collective = rows[0].collective
    if collective not in NCCL_COLLECTIVES:
        yield f"{collective} is left out: the plugin knows {', '.join(NCCL_COLLECTIVES.values())}."
        return
    others = sorted({_name(timing) for timing in rows if not _counterpart(timing)})
    if others:
        yield f"{collective}: left out, because NCCL has no counterpart: {', '.join(others)}."
    faster: Mapping[str, int] = {name: sum(winner.faster == name for winner in winners) for name in others}
    for name, count in faster.items():
        if count:
            yield f"{collective}: {name} was faster than what stands here at {count} of {len(winners)} sizes."
