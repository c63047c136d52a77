"""Proofs of algorithms, without data.  Open `proof` first.

proof           what is proved of an algorithm
symbolic_run    the programs of all ranks against each other
contributions   what a chunk holds: whose data, each how often
"""

from collectives.proof.proof import Proof, estimate_work, prove

__all__ = ["Proof", "estimate_work", "prove"]
