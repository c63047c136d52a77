"""Models of computation, by which the computation of a rank takes virtual time.

    Roofline   every operation of torch by its arithmetic and bytes on a stated device
    Recorded   the forward pass and each gradient by a recorded profile
    Measured   this machine's processor time, times a factor; does not repeat
    Charges    picoseconds per kind of work, and what a script charges itself by `compute`

Without a model computation takes no time.
"""

from collectives.virtual.computation.choice import parse_compute
from collectives.virtual.computation.model import Charges, ComputeModel, Measured, compute
from collectives.virtual.computation.recorded import Recorded
from collectives.virtual.computation.roofline import Roofline

__all__ = ["Charges", "ComputeModel", "Measured", "Recorded", "Roofline", "compute", "parse_compute"]
