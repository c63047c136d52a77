"""Collective algorithms as programs, proved without data and run over any transport.

Open `collectives.program.program` first.  Every name is imported when it is first used: proofs need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.lazy_names import lazy_names

if TYPE_CHECKING:
    from collectives.catalogue.resolve import algorithm_names as algorithm_names
    from collectives.catalogue.resolve import resolve_algorithm as resolve_algorithm
    from collectives.catalogue.verification import verify as verify
    from collectives.communicators.communicator import Communicator as Communicator
    from collectives.communicators.connection import connect as connect
    from collectives.errors import AlgorithmFileError as AlgorithmFileError
    from collectives.errors import CollectiveError as CollectiveError
    from collectives.errors import CollectiveTimeoutError as CollectiveTimeoutError
    from collectives.errors import MismatchError as MismatchError
    from collectives.errors import NotExactError as NotExactError
    from collectives.errors import NotSupportedError as NotSupportedError
    from collectives.errors import ProgramError as ProgramError
    from collectives.errors import UnknownAlgorithmError as UnknownAlgorithmError
    from collectives.program import Algorithm as Algorithm
    from collectives.program import Copy as Copy
    from collectives.program import Cost as Cost
    from collectives.program import Recv as Recv
    from collectives.program import RecvReduce as RecvReduce
    from collectives.program import Reduce as Reduce
    from collectives.program import Send as Send
    from collectives.program import Step as Step
    from collectives.program import algorithm as algorithm
    from collectives.proof import Proof as Proof
    from collectives.timing import Assumptions as Assumptions
    from collectives.timing import Software as Software
    from collectives.timing import simulate as simulate
    from collectives.timing import simulate_jobs as simulate_jobs
    from collectives.timing.job import Job as Job
    from collectives.timing.run import Run as Run

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_names(__name__)
