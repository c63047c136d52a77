"""How the computation of a rank takes virtual time: by a stated model.

    Charges    picoseconds per kind of work, and what a script charges itself by `compute`

Without a model computation takes no time.
"""

from collectives.virtual.computation.charges import Charges, compute
from collectives.virtual.computation.model import ComputeModel

__all__ = ["Charges", "ComputeModel", "compute"]
