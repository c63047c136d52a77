"""Attempts of a run: each with its classes of ranks, until one finds no member of a class to differ.

What a member of a class does that neither its first nor a probe does, folding does not see: a failure, a
file, a second's sleep of one rank in the middle.  So a run that is folded unasked, and turns out to be small,
is carried out once more with a thread for each rank, and only that counts.

What ranks write, and what a trace has got, counts only once their classes are verified: output is *withheld*
until then, and that of an attempt that is given up is gone.  What a script does to files it does again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar, cast

from collectives.virtual.folding.classes import Classes, MembersDiffer
from collectives.virtual.folding.conditions import MOST, NOT_RUN, unmet, users_files
from collectives.virtual.folding.folding import Folding
from collectives.virtual.folding.verification import Verification
from collectives.virtual.isolation.per_rank import Streams
from collectives.virtual.iterations import Iterations
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpus import Gpus
from sim.cluster import Cluster, current_rank_thread
from sim.errors import DeadlockError, RankError
from sim.trace import Trace


class Withheld:
    """Output of the ranks of one attempt.

    Attributes:
        has_shown: some of it has been written.
    """

    def __init__(self, streams: Callable[[int], Streams] | None) -> None:
        self._streams = streams
        self._held: list[tuple[TextIO, str]] | None = []
        self.has_shown = False

    def of(self, rank: int) -> Streams:
        """Return what *rank* is to write to."""
        out, err = (sys.stdout, sys.stderr) if self._streams is None else self._streams(rank)
        return cast(TextIO, _Stream(self, out)), cast(TextIO, _Stream(self, err))

    def write(self, stream: TextIO, text: str) -> None:
        """Write to *stream*, once all is released."""
        if self._held is None:
            self.has_shown = True
            stream.write(text)
        else:
            self._held.append((stream, text))

    def release(self) -> None:
        """Write what was held back, in order, and hold back nothing any more."""
        held, self._held = self._held or [], None
        for stream, text in held:
            self.write(stream, text)


class _Stream:
    """A stream that is held back; all but writing is that of the stream itself."""

    def __init__(self, withheld: Withheld, stream: TextIO) -> None:
        self._withheld = withheld
        self._stream = stream

    def write(self, text: str) -> int:
        self._withheld.write(self._stream, text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


T = TypeVar("T")

REPEATED = (
    "ranks turned out to differ after their output had been shown, so the run began anew: output comes again"
)

SMALL_RUN = 30_000
"""Items that all ranks together issue in a run which is small: some ten seconds of a thread for each."""


class Attempt:
    """One attempt; *repeats* output that an earlier one has shown."""

    def __init__(
        self,
        folding: Folding | None,
        streams: Callable[[int], Streams] | None,
        unfolds: bool = False,
        repeats: bool = False,
    ) -> None:
        self.classes = Classes() if folding is None else folding.classes()
        self._known = {} if folding is None else folding.known
        self._withheld = Withheld(streams) if self.classes.folded else None
        self.streams = streams if self._withheld is None else self._withheld.of
        self._verification: Verification | None = None
        self._cluster: Cluster | None = None
        self._unfolds = unfolds and bool(self.classes.folded)
        self._repeats = repeats
        self._is_settled = False
        self._files: tuple[Path, ...] = ()

    def watch(self, cluster: Cluster, iterations: Iterations) -> None:
        """Compare members of classes when they have finished an iteration."""
        self._cluster = cluster
        if self._repeats:
            Notices.of(cluster).add(REPEATED)
        if self.classes.folded:
            iterations.on_end(lambda *_: self._release_what_counts())
            self._verification = Verification(cluster, self.classes, self._known, self._settle)
            iterations.before_end(self._verification.end_iteration)
            self.classes.before_call.append(self._verification.before_call)

    @contextmanager
    def on_rank(self, fn_or_script: object) -> Iterator[None]:
        """Compare members of classes that run *fn_or_script*, the body, on their GPUs to its end."""
        rank_thread = current_rank_thread()
        if self._verification is None or rank_thread is None:
            yield
            return
        self._verification.begin(rank_thread.rank)
        yield
        self._files = self._files or users_files(fn_or_script)
        self._verification.finish(rank_thread.rank)

    def note_unmet(self, cluster: Cluster) -> None:
        """Give notice of conditions on the rank that no rank has met which was run, as the run has ended."""
        if not self.classes.folded or self.is_in_vain:
            return
        topology = cluster.topology
        found = unmet(self._files, self.classes.folded, topology.num_ranks, topology.ranks_per_node)
        for number, condition in enumerate(found):
            if number == MOST:
                Notices.of(cluster).add(NOT_RUN, "and more")
                return
            Notices.of(cluster).add(NOT_RUN, condition)

    @property
    def has_shown_output(self) -> bool:
        """Whether something that ranks have written has been shown."""
        return self._withheld is not None and self._withheld.has_shown

    @property
    def is_in_vain(self) -> bool:
        """Whether the run is so small that each rank is better given a thread."""
        return self._unfolds and self._issued() <= SMALL_RUN

    def _issued(self) -> int:
        """Return how many items all ranks together have issued to their devices."""
        of_rank = {} if self._cluster is None else Gpus.of(self._cluster).of_rank
        return sum(len(gpu.score) * len(self.classes.members(rank)) for rank, gpu in of_rank.items())

    def _settle(self) -> None:
        """Note that nothing is left to compare."""
        self._is_settled = True
        self._release_what_counts()

    def _release_what_counts(self) -> None:
        """Show what ranks have written if it is known that the attempt counts."""
        if self._is_settled and not self.is_in_vain:
            self.release()

    def release(self) -> None:
        """Show what ranks have written, now and from now on."""
        if self._withheld is not None:
            self._withheld.release()

    def differ(self, error: BaseException) -> MembersDiffer | None:
        """Return which ranks differ, if that is why the attempt has failed with *error*."""
        cause = error.__cause__ if isinstance(error, RankError) else error
        if isinstance(cause, MembersDiffer):
            return cause
        if self._verification is not None and isinstance(error, RankError | DeadlockError):
            return self._verification.difference()
        return None


def in_attempts(
    attempt: Callable[[Attempt], T],
    folding: Folding | None,
    streams: Callable[[int], Streams] | None,
    trace: Trace | None,
    unfolds: bool = False,
) -> T:
    """Return what the first attempt returns in which no member of a class differs.

    Args:
        attempt: carries out one.
        folding: of the run; None: no rank is folded.
        streams: returns the standard output and error of a rank; None: all share the process's.
        trace: gets what the last attempt shows.
        unfolds: a run that turns out to be small is carried out without folding.

    Raises:
        NotSupportedError: ranks differ in too many ways.
        Exception: what an attempt raises for another reason.
    """
    recorded: list[list[Any]] = [] if trace is None else [trace.spans, trace.counts, trace.arrows]
    lengths = [len(entries) for entries in recorded]
    repeats = False
    while True:
        current = Attempt(folding, streams, unfolds, repeats)
        try:
            outcome = attempt(current)
        except BaseException as error:
            differ = current.differ(error)
            if folding is not None and differ is not None:
                folding.split(differ, current.classes)
            elif current.is_in_vain and isinstance(error, RankError | DeadlockError):
                folding = None
            else:
                current.release()
                if current.classes.folded and isinstance(error, RankError | DeadlockError):
                    error.add_note(_advice(current.classes))
                raise
        else:
            if not current.is_in_vain:
                current.release()
                return outcome
            folding = None
        repeats = repeats or current.has_shown_output
        for entries, length in zip(recorded, lengths, strict=True):
            del entries[length:]
        gc.collect()


def _advice(classes: Classes) -> str:
    return (
        f"ranks are folded ({'; '.join(map(str, classes.folded))}); if they do not do the same, run without "
        "(fold=False, --fold off)"
    )
