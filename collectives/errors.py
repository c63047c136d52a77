"""Errors of `collectives`, and whose fault each is.

CollectiveError                 a RuntimeError, as torch's own backends raise
 ├── ProgramError            an algorithm is wrong (its author)
 ├── UnknownAlgorithmError   there is no algorithm of that name (the caller)
 ├── AlgorithmFileError      FILE.py:FUNCTION or FILE.xml cannot be loaded (the caller)
 ├── NotExactError           the makespan engine cannot give the exact time (use the other one)
 ├── NotSupportedError       right in itself, but not here; says where or what instead
 ├── MismatchError           the ranks disagree about what they call, or how (one of the ranks)
 └── CollectiveTimeoutError  a rank did not take part in time (a rank, or the network)
"""

from __future__ import annotations


class CollectiveError(RuntimeError):
    """Base of all errors of this package."""


class ProgramError(CollectiveError):
    """An algorithm does not do what its collective demands; the message holds the evidence."""


class UnknownAlgorithmError(CollectiveError, ValueError):
    """There is no algorithm of that name; the message names the nearest."""


class AlgorithmFileError(CollectiveError):
    """``FILE.py:FUNCTION`` or ``FILE.xml`` names no loadable program."""


class NotExactError(CollectiveError):
    """The *makespan* engine cannot give the exact time; ``engine="events"`` can."""


class NotSupportedError(CollectiveError):
    """The request is refused; the message says what to use instead."""


class MismatchError(CollectiveError):
    """The ranks of a group called different collectives, or the same one differently."""


class CollectiveTimeoutError(CollectiveError):
    """A collective did not complete in time; the message names the rank that is missing."""
