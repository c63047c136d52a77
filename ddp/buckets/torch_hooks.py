"""Torch's own communication hooks over a backend for which some of them were not written.

PowerSGD and the quantisation hooks chain collectives: the callback of one starts the next, and waits for
it.  Over Gloo callbacks run in the two threads that also carry the collectives.  If two buckets are under
way, their callbacks start collectives in another order on every rank, so that messages of different
lengths meet and end the process; or they take up both threads and wait for ever.  So over Gloo such hooks
take turns (`takes_turns`): one is called when the future of the one before it has its value.

The quantisation hooks read the future of an all-gather as NCCL gives it, which is one tensor with a row for
each rank, and as ours does; Gloo's is a list of tensors.  `state_for` hands them a group whose futures are
NCCL's.

Source: torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py, quantization_hooks.py;
ProcessGroupGloo.cpp (runLoop, which runs callbacks), ProcessGroupNCCL.cpp (allgather).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import partial
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization

QUANTIZING: frozenset[object] = frozenset(
    {quantization.quantization_pertensor_hook, quantization.quantization_perchannel_hook}
)
OURS = "testbed"
"""The name of our own backend."""

CHAINING: frozenset[object] = QUANTIZING | {power_sgd.powerSGD_hook, power_sgd.batched_powerSGD_hook}


def backend_of(group: Any, device: torch.device) -> str:
    """Return the name of the backend that carries collectives of *device*; our own is the testbed."""
    if hasattr(group, "connect"):
        return OURS
    return str(group._get_backend(device).name())


def takes_turns(hook: object, group: Any, device: torch.device) -> bool:
    """Return whether *hook* must not be under way for two buckets at a time over *group*."""
    return backend_of(group, device) == "gloo" and _is_one_of(CHAINING, hook)


def state_for(hook: object, state: Any, device: torch.device) -> Any:
    """Return what to hand to *hook* in place of *state*, which of a quantisation hook is a group or None."""
    group = dist.group.WORLD if state is None else state
    if not _is_one_of(QUANTIZING, hook) or backend_of(group, device) != "gloo":
        return state
    return StackingGroup(group)


class StackingGroup:
    """A group whose all-gather has a future of one stacked tensor, as NCCL's has.

    Args:
        group: carries the all-gather.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def rank(self) -> int:
        """Return the rank in the group."""
        return int(self._group.rank())

    def size(self) -> int:
        """Return the number of ranks."""
        return int(self._group.size())

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any) -> Any:
        """Start the all-gather of one tensor into a list; return a work that has a future."""
        return _Gathering(self._group.allgather(outputs, inputs, options), outputs[0])


class _Gathering:
    def __init__(self, work: Any, gathered: list[torch.Tensor]) -> None:
        self._work = work
        self._gathered = gathered

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        def stack(future: torch.futures.Future[Any]) -> list[torch.Tensor]:
            future.wait()
            return [torch.stack(self._gathered)]

        stacked: torch.futures.Future[list[torch.Tensor]] = self._work.get_future().then(stack)
        return stacked


def _is_one_of(hooks: Collection[object], hook: object) -> bool:
    """Return whether *hook* is one of *hooks*, or a partial object or a closure of one."""
    seen: set[int] = set()
    found: list[Any] = [hook]
    while found:
        one = found.pop()
        if id(one) in seen or not isinstance(one, FunctionType | partial):
            continue
        seen.add(id(one))
        if isinstance(one, partial):
            found.append(one.func)
        elif one in hooks:
            return True
        else:
            found += inspect.getclosurevars(one).nonlocals.values()
    return False
