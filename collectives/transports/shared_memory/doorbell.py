"""Doorbell: a rank that sleeps until a message comes, by the kernel's futex.

A rank says that it sleeps and looks once more before it does.  The two sides do not stop for each other's
stores to be seen, so in a moment's coincidence a ring is missed: no sleep lasts longer than a millisecond.
"""

from __future__ import annotations

import ctypes

from collectives.transports.shared_memory.segment import LINE, WORD, Part

_LIBC = ctypes.CDLL(None, use_errno=True)
_FUTEX = 202  # x86-64
_WAIT, _WAKE = 0, 1
_ALL = 0x7FFF_FFFF  # threads of a rank that sleep
_SLEEPS = LINE // WORD
"""The word that says whether a rank sleeps; the bell is the first of its part."""

MOST_LOOKS = 200
FEWEST_LOOKS = 8


class Patience:
    """How often a rank looks for a message before it sleeps: seldom where that was in vain of late.

    A rank with a core to itself has a message sooner by looking than by being woken.  Where others want its
    core it keeps them from it, among them perhaps the rank for whose message it looks.

    Attributes:
        looks: how often, of some microseconds each.
    """

    def __init__(self) -> None:
        self.looks = MOST_LOOKS

    def reward(self) -> None:
        """Note that something came while the rank looked."""
        self.looks = min(2 * self.looks, MOST_LOOKS)

    def disappoint(self) -> None:
        """Note that nothing did, so that it sleeps."""
        self.looks = max(self.looks // 4, FEWEST_LOOKS)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_MOMENT, _BRIEF_MOMENT = (ctypes.byref(_Timespec(0, nanoseconds)) for nanoseconds in (1_000_000, 100_000))


def ring(part: Part) -> None:
    """Wake the rank of *part*, if it sleeps."""
    words = part.words
    words[0] = (words[0] + 1) & 0x7FFF_FFFF
    if words[_SLEEPS]:
        _LIBC.syscall(_FUTEX, ctypes.c_void_p(part.address), _WAKE, _ALL, None, None, 0)


def heard(part: Part) -> int:
    """Return how often the bell has rung, and say that this rank is going to sleep."""
    part.words[_SLEEPS] = 1
    return part.words[0]


def sleep(part: Part, rings: int, *, briefly: bool = False) -> None:
    """Sleep, at most a millisecond, unless the bell has rung since *rings* was heard; or a tenth of it."""
    moment = _BRIEF_MOMENT if briefly else _MOMENT
    _LIBC.syscall(_FUTEX, ctypes.c_void_p(part.address), _WAIT, rings, moment, None, 0)


def awake(part: Part) -> None:
    """Say that this rank does not sleep."""
    part.words[_SLEEPS] = 0
