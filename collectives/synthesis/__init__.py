"""Synthesis: programs made for one network.  Open `synthesis` first.

routes        routes between all ranks    symmetry      ranks and links that are alike
cut           the cut that bounds          arborescence  the cheapest tree of a root
demand        trees or paths that are asked for        exchange_cut  the cut that bounds an all-to-all
packing       trees, and how much each carries         rounding      whole chunks for trees
rounds        which chunk moves in which round         messages      rounds as a program
exchange      rounds of an all-to-all as a program
few_trees     a few trees for each root                search        packings and candidates
candidates    divisions into chunks and rounds         synthesis     the best, beside what ships
"""

from collectives.synthesis.synthesis import COLLECTIVES, Synthesis, synthesize

__all__ = ["COLLECTIVES", "Synthesis", "synthesize"]
