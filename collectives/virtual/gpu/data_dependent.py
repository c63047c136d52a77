"""Operations whose outcome depends on data: answered where it is known, else by a rule or not at all.

Without data a number that is read from the device is NaN, whatever its type, and a truth value is False; a
notice says so once, and of truth values at which lines.  An integer that Python needs as one, as a size or
an index, and results whose size depends on data are refused with the line.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import torch
from torch import Tensor

from collectives.errors import NotSupportedError
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.notices import Notices

NO_NUMBERS = "without data numbers read from the device are NaN"
NO_TRUTH = "without data truth values read from the device are False"


def number(tensor: Tensor, notices: Notices) -> float | bool:
    """Return what stands for the element of *tensor*, which has no value."""
    if tensor.dtype is torch.bool:
        notices.add(NO_TRUTH, current_place() or None)
        return False
    notices.add(NO_NUMBERS)
    return math.nan


def stand_in(tensor: Tensor, dtype: torch.dtype, notices: Notices) -> Tensor:
    """Return a tensor of the CPU in the place of the data of *tensor*: NaN, 0 or False."""
    notices.add("without data tensors copied to the CPU are NaN; integers are 0, truth values False")
    filled = math.nan if dtype.is_floating_point or dtype.is_complex else 0
    return torch.full(tensor.shape, filled, dtype=dtype)


def refuse(what: str) -> NoReturn:
    """Refuse *what*, which depends on data that there is not.

    Raises:
        NotSupportedError: always; names the script's line.
    """
    place = current_place()
    raise NotSupportedError(
        f"{what} depends on data{f', at {place}' if place else ''}, and a run without data has none; "
        "leave it out, or run with data: without --fake"
    )


def integer(tensor: Any) -> int:
    """Return the integer that *tensor* holds, where Python needs one.

    Raises:
        NotSupportedError: it is not known.
    """
    value = tensor.item()
    if isinstance(value, float) and math.isnan(value):
        refuse("the integer of a tensor")
    return int(value)
