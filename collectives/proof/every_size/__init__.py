"""Proofs for every number of ranks at once, by an SMT solver.  Open `induction` first.

induction    what is proved of a program, row by row and by induction over its loops
reading      a program run on a symbolic rank, step and number of ranks
rows         what was read: a step of all ranks
loops        loops over symbols: ranges, and distances that double or halve
step         what is proved of a step, and what is held after it
loop_source  loops in the source, which may carry nothing on
comparison   what was read, held against the program's own steps
trees        two binary trees over symbols
tree_lemmas  that a rule for who is above whom makes a tree, and who works in both
powers       powers of two, and what is true of them
bit_sums     sums over the powers of two in a number
products     products and quotients of symbols
linear       obligations in which products are symbols
bytes_sent   that the busiest rank sends the bytes that are declared
sending      hints for that: formulas, and who may be the busiest; sums has the sums in what is declared
functions    functions that programs call, over symbols
composition  a program made of others, read with a contract in place of each; composition_proof proves it
             and counts its steps, composition_comparison holds what was read against its own
nodes        ranks divided into nodes, and what they hold
demands      the contracts of the collectives, over symbols
invariants   what a loop of a shipped program keeps true; block_invariants, stored_invariants
symbols      numbers and truth values of the solver, as a program sees them
solving      the solver, asked whether claims contradict each other
terms        terms of the solver: what occurs in them
"""

from collectives.proof.every_size.induction import Scope, scope_of
from collectives.proof.every_size.symbols import NotProvedError

__all__ = ["NotProvedError", "Scope", "scope_of"]
