"""Attempts of a run: each with its classes of ranks, until one finds no member of a class to differ.

What ranks write, and what a trace has got, counts only once their classes are verified; that of an attempt
that is given up is gone.  What a script does to files it does again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from collectives.virtual.folding.classes import Classes, MembersDiffer
from collectives.virtual.folding.folding import Folding
from collectives.virtual.folding.verification import Verification
from collectives.virtual.folding.withheld import Withheld
from collectives.virtual.isolation.per_rank import Streams
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, current_rank_thread
from sim.errors import DeadlockError, RankError
from sim.trace import Trace

T = TypeVar("T")


class Attempt:
    """One attempt.

    Args:
        folding: of the run; None: no rank is folded.
        streams: returns the standard output and error of a rank; None: all share the process's.

    Attributes:
        classes: of ranks that are taken to do the same.
        streams: what ranks are to write to.
    """

    def __init__(self, folding: Folding | None, streams: Callable[[int], Streams] | None) -> None:
        self.classes = Classes() if folding is None else folding.classes()
        self._known = {} if folding is None else folding.known
        self._withheld = Withheld(streams) if self.classes.folded else None
        self.streams = streams if self._withheld is None else self._withheld.of
        self._verification: Verification | None = None

    def watch(self, cluster: Cluster, iterations: Iterations) -> None:
        """Compare members of classes when they have finished an iteration."""
        if self.classes.folded:
            self._verification = Verification(cluster, self.classes, self._known, self.release)
            iterations.before_end(self._verification.end_iteration)
            self.classes.before_call.append(self._verification.before_call)

    @contextmanager
    def on_rank(self) -> Iterator[None]:
        """Compare members of classes that run the body on their GPUs to its end."""
        rank_thread = current_rank_thread()
        if self._verification is None or rank_thread is None:
            yield
            return
        self._verification.begin(rank_thread.rank)
        yield
        self._verification.finish(rank_thread.rank)

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
) -> T:
    """Return what the first attempt returns in which no member of a class differs.

    Raises:
        NotSupportedError: ranks differ in too many ways.
        Exception: what an attempt raises for another reason.
    """
    recorded: list[list[Any]] = [] if trace is None else [trace.spans, trace.counts, trace.arrows]
    lengths = [len(entries) for entries in recorded]
    while True:
        current = Attempt(folding, streams)
        try:
            return attempt(current)
        except BaseException as error:
            differ = current.differ(error)
            if folding is None or differ is None:
                current.release()
                if current.classes.folded and isinstance(error, RankError | DeadlockError):
                    error.add_note(_advice(current.classes))
                raise
            folding.split(differ, current.classes)
        for entries, length in zip(recorded, lengths, strict=True):
            del entries[length:]
        gc.collect()


def _advice(classes: Classes) -> str:
    return (
        f"ranks are folded ({'; '.join(map(str, classes.folded))}); if they do not do the same, run without "
        "(fold=False, --fold off)"
    )
