"""Request: one call of a collective or of a message, checked, and how its result is handed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index

import torch

from collectives.communicators.reduction import has_fractions
from collectives.execution.call import Call, Lane

Memory = Callable[[int], torch.Tensor | None]
"""Returns so many bytes that messages are read from without a copy, or None if there are not as many."""


@dataclass(slots=True, eq=False)
class Request:
    """One call on this rank.

    Attributes:
        collective: its name; ``message`` for one from a rank to another.
        count: elements of the whole buffer, of which each rank may have a part; of a row, where parts differ.
        dtype: of the elements.
        given: what this rank gives, as the caller has it; None where it gives nothing or works in place.
        output: where the caller wants the result; in place, what this rank gives is there.  None where
            this rank gets none.
        op: the reduction, if there is one.
        root: of a rooted collective.
        lane: the queue of calls in which it is in order.
        splits: elements of each part of *output*, and of each part of *given*, where parts differ.
        sequence: its number in its lane, from 0, which the communicator sets when it starts the call.
    """

    collective: str
    count: int
    dtype: torch.dtype
    given: torch.Tensor | None = None
    output: torch.Tensor | None = None
    op: str = ""
    root: int | None = None
    lane: Lane = None
    splits: tuple[list[int], list[int]] | None = None
    sequence: int = 0

    def __post_init__(self) -> None:
        """Take integers of other kinds, such as NumPy's, as Python's: calls are compared as texts, too."""
        if self.root is not None:
            self.root = index(self.root)
        if self.lane is not None:
            source, target, tag = self.lane
            self.lane = index(source), index(target), index(tag)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer, as nccl-tests counts them."""
        return self.count * self.dtype.itemsize

    def call(self, algorithm: str) -> Call:
        """Return the fingerprint of this call when *algorithm* carries it out."""
        dtype = str(self.dtype).removeprefix("torch.")
        op = self.op if self.splits is None else "by parts"
        return Call(self.sequence, self.collective, algorithm, self.count, dtype, op, self.root, self.lane)

    def finish(self, result: torch.Tensor | None, world_size: int) -> None:
        """Hand out *result*, which is flat; an average has been summed up and is divided now.

        Of integers towards 0, as NCCL does (``FuncSumPostDiv``, src/device/reduce_kernel.h).
        """
        if self.output is None or result is None:
            return
        if self.op == "avg":
            result.div_(world_size, rounding_mode=None if has_fractions(self.dtype) else "trunc")
        write_back(self.output, result)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor*, flat and contiguous: a view of it, or a copy if there is none; see `write_back`.

    Its memory holds its values; of a lazily negated or conjugated tensor, whose own does not, it is a copy.
    It counts its versions by itself: autograd takes nothing that is written there for a change of *tensor*,
    as nothing that a collective of torch's own backends writes.  A subclass is a plain tensor to backends.
    """
    data = _plain(tensor).data.contiguous().squeeze().view(-1)  # squeezed, as one element keeps any stride
    return data.resolve_conj().resolve_neg() if _is_lazy(data) else data


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor* without a subclass that only gives it methods, which another rank's may not know."""
    kind = type(tensor)
    if kind is torch.Tensor or kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def apart_from(other: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return *tensor*, flat and contiguous, in memory that *other* does not share."""
    result = flat(tensor)
    shared = result.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    return result.clone() if shared else result


def write_back(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """Copy *result*, which is flat, to *tensor*, unless it is its memory already."""
    if result.data_ptr() != tensor.data_ptr() or _is_lazy(tensor):
        tensor.data.copy_(result.view(tensor.shape))


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether the values of *tensor* are not those in its memory: negated or conjugated when read."""
    return tensor.is_neg() or tensor.is_conj()
