"""Replicas that start equal: the same model on every rank, and the values of one of them.

Torch compares shapes on all ranks but the first, which goes on and hangs.  Here every rank learns
what every other has, so every rank raises, and names the parameter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from collectives.communicators.communicator import Communicator
from ddp.errors import ModelMismatchError

BROADCAST_BYTES = 250 * 2**20


def describe(parameters: Mapping[str, torch.Tensor], options: Mapping[str, object]) -> list[str]:
    """Return, a line each, what must be the same on every rank."""
    lines = [
        f"parameter {name} of {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}, "
        f"strides {list(tensor.stride())}"
        for name, tensor in parameters.items()
    ]
    return lines + [f"option {name}={value!r}" for name, value in options.items()]


def verify_same(lines: Sequence[str], communicator: Communicator, device: torch.device) -> None:
    """Compare *lines* over all ranks; the text travels only where it differs.

    Raises:
        ModelMismatchError: on every rank, naming the first difference.
    """
    text = "\n".join(lines).encode()
    digest = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
    world_size = communicator.world_size
    summaries = torch.empty(world_size * 2, dtype=torch.int64, device=device)
    communicator.all_gather(summaries, torch.tensor([len(text), digest], dtype=torch.int64, device=device))
    summary_of = summaries.view(world_size, 2).tolist()
    if all(summary == summary_of[0] for summary in summary_of):
        return
    length = max(size for size, _ in summary_of)
    padded = torch.frombuffer(bytearray(text.ljust(length)), dtype=torch.uint8).to(device)
    texts = torch.empty(world_size * length, dtype=torch.uint8, device=device)
    communicator.all_gather(texts, padded)
    lines_of = [bytes(row.tolist()).decode().rstrip().split("\n") for row in texts.view(world_size, length)]
    raise ModelMismatchError(_first_difference(lines_of))


def _first_difference(lines_of: Sequence[Sequence[str]]) -> str:
    for rank, lines in enumerate(lines_of):
        for expected, got in zip_longest(lines_of[0], lines, fillvalue="nothing in its place"):
            if expected != got:
                return (
                    f"the ranks wrapped different models: rank 0 has {expected}, rank {rank} has {got}; "
                    "wrap the same module with the same arguments on every rank"
                )
    raise AssertionError("the digests differ, the texts do not")


@torch.no_grad()
def broadcast_from(
    root: int, tensors: Sequence[torch.Tensor], communicator: Communicator, nbytes: int = BROADCAST_BYTES
) -> None:
    """Replace *tensors* by those of rank *root*, in as few messages as *nbytes* a message allow.

    Values travel as bytes, so dtypes mix and arrive bit for bit.  A tensor's version counter does
    not move: a graph that saved a buffer stays valid.
    """
    for group in _groups(tensors, nbytes):
        flat = torch.cat([_as_bytes(tensor) for tensor in group])
        communicator.broadcast(flat, root=root)
        if communicator.rank == root:
            continue
        sizes = [tensor.numel() * tensor.element_size() for tensor in group]
        for tensor, piece in zip(group, torch.split(flat, sizes), strict=True):
            values = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
            values.view(torch.uint8).copy_(piece)
            with _unsafe_preserve_version_counter(tensor):
                tensor.copy_(values.view(tensor.shape))


def _groups(tensors: Sequence[torch.Tensor], nbytes: int) -> Iterator[list[torch.Tensor]]:
    """Divide the tensors that hold anything into messages of one device each."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        group: list[torch.Tensor] = []
        size = 0
        for tensor in tensors:
            if tensor.device == device and tensor.numel():
                group.append(tensor)
                size += tensor.numel() * tensor.element_size()
                if size >= nbytes:
                    yield group
                    group, size = [], 0
        if group:
            yield group


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
