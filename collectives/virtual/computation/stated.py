"""Costs that a script states of its own operators, where torch and this project have no formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from collectives.errors import NotSupportedError

F = TypeVar("F", bound=Callable[..., Any])
_KEYS = ("flops", "bytes", "seconds")
_TOO_MUCH = 1e30
"""Of any of these; times stay numbers that can be shown."""


class StatedCost(NamedTuple):
    """What a call of an operator costs.

    Attributes:
        flops: of arithmetic, a multiplication and an addition each one.
        nbytes: read and written; None: those of the tensors that it takes and returns.
        seconds: that its kernels take; None: as long as its arithmetic at the rate of its type, or as its
            bytes, whichever is longer, and a launch.
    """

    flops: int
    nbytes: int | None
    seconds: float | None


_formulas: dict[Any, Callable[..., Any]] = {}


def cost(operator: Any) -> Callable[[F], F]:
    """Return what registers a formula for an *operator* of the script's own.

    The formula is called with the arguments of a call, tensors without data among them, and the result by
    the name ``out`` if it takes that; it returns a mapping with ``flops``, ``bytes`` or ``seconds``.  It may
    look at shapes, types and whole numbers only, and is asked once for each of them.  On real devices it is
    never asked.

        @torch.library.triton_op("mine::scan", mutates_args=())
        def scan(x: torch.Tensor) -> torch.Tensor: ...

        @testbed.cost(scan)
        def _(x, out):
            return {"flops": 2 * x.numel(), "bytes": x.nbytes + out.nbytes}

    Args:
        operator: what ``torch.library.custom_op`` and ``triton_op`` return, or one of ``torch.ops``.

    Raises:
        NotSupportedError: it is none.
    """
    overload = getattr(operator, "_opoverload", operator)
    packet = getattr(overload, "overloadpacket", overload)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise NotSupportedError(
            f"cost: expected an operator of torch.library or torch.ops, got {operator!r}; make the function "
            "one by torch.library.custom_op, or say what it takes by fused or compute"
        )

    def register(formula: F) -> F:
        _formulas[packet] = formula
        return formula

    return register


def stated_cost(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> StatedCost | None:
    """Return what a call of the overload *func* costs by its registered formula; None if it has none.

    Raises:
        NotSupportedError: the formula returns something else.
    """
    formula = _formulas.get(func.overloadpacket)
    if formula is None:
        return None
    takes = inspect.signature(formula).parameters.values()
    wants_out = any(one.name == "out" or one.kind is one.VAR_KEYWORD for one in takes)
    found = formula(*args, **kwargs, **({"out": result} if wants_out else {}))
    if (
        not isinstance(found, Mapping)
        or not found
        or any(
            key not in _KEYS or not isinstance(value, (int, float)) or not 0 <= value < _TOO_MUCH
            for key, value in found.items()
        )
    ):
        raise NotSupportedError(
            f"cost of {func}: expected {', '.join(_KEYS)} by name, numbers from 0 to {_TOO_MUCH:g}, "
            f"got {found!r:.80}"
        )
    nbytes, seconds = found.get("bytes"), found.get("seconds")
    return StatedCost(
        int(found.get("flops", 0)),
        None if nbytes is None else int(nbytes),
        None if seconds is None else float(seconds),
    )
