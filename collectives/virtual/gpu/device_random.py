"""Random generator of a CUDA device: a stream of numbers of its own, beside the CPU's.

Numbers are drawn by the CPU's kernels, so a seed gives the numbers that it gives on the CPU, but what one
generator draws leaves the other alone, as on a real device.

The state looks like CUDA's: a seed and an offset, of 8 bytes each.  A state that was read and is set again
puts the generator back to where it was then, also one that another rank has read, as where ranks agree on a
state; any other one, such as DTensor derives for the part of a rank, seeds it anew.  So the offset is told by
what the generator will draw, and is the same on all ranks where that is.

Source: torch, aten/src/ATen/cuda/CUDAGeneratorImpl.cpp (``get_state``); torch/distributed/tensor/_random.py.
"""

from __future__ import annotations

import contextlib
import struct
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

import torch
from torch import Tensor

_OFFSETS = 4
"""Offsets are multiples of it."""
_KEPT = 256
"""States that can be put back."""
_POSITIVE = (1 << 63) - 1
_UNTOLD = -1
"""An offset that nobody has asked for."""
_STATE = struct.Struct("=qq")
"""A seed and an offset."""


class DeviceRandom:
    """The generator of one device.

    Args:
        has_data: whether tensors have values; where only a few have, the offset counts what is drawn, and a
            state that is set again does not put the generator back.
        of_all: states that ranks of the run have read, and what the generator was to draw then.
    """

    def __init__(self, has_data: bool, of_all: OrderedDict[bytes, Tensor]) -> None:
        self._has_data = has_data
        self._of_all = of_all
        self._states: OrderedDict[bytes, Tensor] = OrderedDict()
        self._is_captured = False
        self.seed(torch.initial_seed())

    def seed(self, seed: int) -> None:
        """Begin anew with *seed*."""
        self._check()
        self._seed, self._offset = int(seed) & _POSITIVE, 0
        self._begin(int(seed))

    @property
    def initial_seed(self) -> int:
        """The seed from which it began."""
        return self._seed

    def _begin(self, seed: int) -> None:
        self._seed_to_draw_from: int = seed
        self._drawn_to: Tensor | None = None

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        """Let what the CPU's kernels draw in the body come from here."""
        cpu = torch.default_generator
        before = cpu.get_state()
        if self._drawn_to is None:
            cpu.manual_seed(self._seed_to_draw_from)
        else:
            cpu.set_state(self._drawn_to)
        try:
            yield
        finally:
            self._drawn_to = cpu.get_state()
            if self._has_data:
                self._offset = _UNTOLD
            cpu.set_state(before)

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Be after the body where it was before: what that draws, replays of a graph draw."""
        before = self._offset, self._drawn_to
        self._is_captured = True
        try:
            yield
        finally:
            self._is_captured = False
            self._offset, self._drawn_to = before

    def move_on(self, draws: int = 1) -> None:
        """Note that something is drawn, of which nobody asks what."""
        if not self._has_data:
            self._offset += draws * _OFFSETS

    def state(self) -> Tensor:
        """Return the state: 16 bytes."""
        self._check()
        if self._offset == _UNTOLD and self._drawn_to is not None:
            digest = blake2b(self._drawn_to.numpy().tobytes(), digest_size=7).digest()
            self._offset = int.from_bytes(digest, "little") * _OFFSETS
        state = _STATE.pack(self._seed, self._offset)
        if self._drawn_to is not None:
            for states in (self._states, self._of_all):
                states[state] = self._drawn_to
                if len(states) > _KEPT:
                    states.popitem(last=False)
        return torch.frombuffer(bytearray(state), dtype=torch.uint8)

    def set_state(self, state: Tensor) -> None:
        """Go on from *state*."""
        self._check()
        key = _bytes_of(state)
        seed, offset = self._seed, self._offset = _STATE.unpack(key)
        if not self._has_data:
            return
        self._drawn_to = self._states.get(key, self._of_all.get(key))
        if self._drawn_to is None:
            self._begin(hash((seed, offset)) & _POSITIVE if offset else seed)

    def _check(self) -> None:
        """Check that no graph is being captured, whose replays would draw from another state.

        Raises:
            RuntimeError: one is.
        """
        if self._is_captured:
            raise RuntimeError(
                "CUDA error: the seed and state of the device's random generator are not available while a "
                "CUDA graph is being captured; keep them out of it (checkpoint: preserve_rng_state=False)"
            )


class DefaultGenerator:
    """What stands for a ``torch.Generator`` of `torch.cuda.default_generators`; it cannot be given to torch.

    Args:
        random: of the device.
        device: whose generator it is.
    """

    def __init__(self, random: DeviceRandom, device: torch.device) -> None:
        self.device = device
        self._random = random
        self.get_state = self.graphsafe_get_state = random.state
        self.set_state = self.graphsafe_set_state = random.set_state

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Begin anew with *seed*."""
        self._random.seed(seed)
        return self

    def initial_seed(self) -> int:
        """Return the seed from which it began."""
        return self._random.initial_seed


def _bytes_of(state: Tensor) -> bytes:
    """Return the bytes of *state*; those of a plain one without an operation of torch."""
    if type(state) is Tensor and not state.is_cuda:
        return state.numpy().tobytes()
    return bytes(state.cpu().tolist())
