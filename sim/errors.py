"""Errors of simulations.

SimulationError
├── UnitError          a quantity that cannot be read, or is out of range    (a ValueError)
├── TopologyError      a network that cannot be, or ranks it does not have   (a ValueError)
├── NetworkFileError   a network file that cannot be understood              (a ValueError)
├── DeviceFileError    a device file that cannot be understood               (a ValueError)
├── ConditionError     a condition that cannot be, or that does not fit      (a ValueError)
├── LinkFailedError    messages were on a link, or routed over it, that failed
├── WaitTimeoutError   a rank has waited for something as long as it wanted to  (a TimeoutError)
├── DeadlockError      every rank waits for something that will not happen
├── OrdersError        not every order of events of a program can be run
└── RankError          the code of a rank raised; the cause is what it raised

Each names the thing at fault, what was expected and what was there.
"""

from __future__ import annotations

from typing import Any


class SimulationError(Exception):
    """The base of every error that `sim` raises on purpose."""


class UnitError(SimulationError, ValueError):
    """A bandwidth, time or size that cannot be read, or is out of range."""


class TopologyError(SimulationError, ValueError):
    """A network that cannot be built, or a rank or link that it does not have."""


class NetworkFileError(SimulationError, ValueError):
    """A network file or preset that does not exist or cannot be understood."""


class DeviceFileError(SimulationError, ValueError):
    """A device file or preset that does not exist or cannot be understood."""


class ConditionError(SimulationError, ValueError):
    """A condition that cannot be, or that does not fit the network or the engine."""


class LinkFailedError(SimulationError):
    """Messages were lost with a link; the message says which, in which steps of what.

    Attributes:
        links: names of the links that failed and that lost messages were routed over.
        time_ps: when the messages were lost.
        lost: (of what, which message) for each, such as ``("all_reduce by ring", "step 2: rank 3 sends …")``.
    """

    def __init__(
        self, links: tuple[str, ...], time_ps: int, lost: tuple[tuple[str, str], ...], message: str
    ) -> None:
        super().__init__(links, time_ps, lost, message)
        self.links = links
        self.time_ps = time_ps
        self.lost = lost

    def __str__(self) -> str:
        return str(self.args[-1])


class WaitTimeoutError(SimulationError, TimeoutError):
    """A rank has waited as long as it wanted to, and what it waited for has not come.

    Attributes:
        deadlock: what all ranks waited for, if nothing would ever have happened again; else empty.
    """

    def __init__(self, message: str, deadlock: str = "") -> None:
        super().__init__(message)
        self.deadlock = deadlock


class DeadlockError(SimulationError):
    """Nothing can happen any more, and some ranks still wait; says who waits for what."""


class OrdersError(SimulationError):
    """Not every order of events of a program can be run, so nothing is known of the rest."""


class RankError(SimulationError):
    """The code of one rank raised; ``__cause__`` is what it raised.

    Attributes:
        rank: the rank whose code raised.
        report: of the run up to there, if whoever ran it has made one.
    """

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(rank, message)
        self.rank = rank
        self.report: Any = None

    def __str__(self) -> str:
        return str(self.args[1])
