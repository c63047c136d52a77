"""Random generator of a CUDA device, which draws from the rank's generator of the CPU.

Its state looks like CUDA's: a seed and an offset, of 8 bytes each.  A state that was read and is set again
puts the CPU's generator back to where it was then, also one that another rank has read, as where ranks agree
on a state; any other one, such as DTensor derives for the part of a rank, seeds it anew.

Source: torch, aten/src/ATen/cuda/CUDAGeneratorImpl.cpp (``get_state``); torch/distributed/tensor/_random.py.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

_OFFSETS = 4
"""Offsets are multiples of it."""
_KEPT = 256
"""States that can be put back."""


class DeviceRandom:
    """The generator of one device.

    Args:
        has_data: whether anything is drawn at all; without data the CPU's generator is left alone.
        of_all: states that ranks of the run have read, and of the CPU's generator then.
    """

    def __init__(self, has_data: bool, of_all: OrderedDict[bytes, Tensor]) -> None:
        self._has_data = has_data
        self._of_all = of_all
        self._seed = torch.initial_seed() & (1 << 63) - 1
        self._offset = 0
        self._states: OrderedDict[bytes, Tensor] = OrderedDict()

    def seed(self, seed: int) -> None:
        """Begin anew with *seed*."""
        self._seed, self._offset = int(seed) & (1 << 63) - 1, 0
        torch.default_generator.manual_seed(int(seed))

    def state(self) -> Tensor:
        """Return the state: 16 bytes."""
        self._offset += _OFFSETS
        state = torch.tensor([self._seed, self._offset]).view(torch.uint8)
        if self._has_data:
            for states in (self._states, self._of_all):
                states[_bytes_of(state)] = torch.default_generator.get_state()
                if len(states) > _KEPT:
                    states.popitem(last=False)
        return state

    def set_state(self, state: Tensor) -> None:
        """Go on from *state*."""
        seed, offset = state.cpu().view(torch.int64).tolist()
        self._seed, self._offset = seed, max(self._offset, offset)
        if self._has_data:
            key = _bytes_of(state)
            kept = self._states.get(key, self._of_all.get(key))
            if kept is None:
                torch.default_generator.manual_seed(hash((seed, offset)) & (1 << 63) - 1)
            else:
                torch.default_generator.set_state(kept)


def _bytes_of(state: Tensor) -> bytes:
    return bytes(state.cpu().tolist())
