"""FSDP1 and FSDP2 on virtual CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import _flat_param
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group

from collectives.virtual.folding.divisions import Flat, Rows, note_division
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.replacements import on_methods
from collectives.virtual.gpu.values import value_of
from collectives.virtual.isolation.patching import Replacement

_DATA: Any = Tensor.data
_CHUNKED: Any = vars(_fsdp_param)["_chunk_with_empty"]


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    FSDP1 moves parameters by ``parameter.data = parameter.to(device)``, which gives a plain tensor the
    memory of a virtual one, but not its class.  FSDP2 cuts each parameter into as many views as there are
    ranks, to take one: with 1,024 ranks most of the time of building a model.  Both say here how they have
    divided parameters, so that ranks with unequal parts are told apart.  Where they free the memory of what
    they have gathered, that of its value is freed as well.
    """
    yield Tensor, "data", property(_DATA.__get__, on_methods(_DATA.__set__, _set_data))
    yield _fsdp_param, "_chunk_with_empty", on_methods(_chunked, _Chunks)
    yield FlatParamHandle, "_init_shard_metadata", _note_shards
    for owner, underscore in ((_fsdp_param, ""), (_fsdp_param_group, ""), (_flat_param, "_")):
        for name in (f"{underscore}free_storage", f"{underscore}alloc_storage"):
            if name in vars(owner):
                yield owner, name, _with_value(vars(owner)[name])


def _set_data(tensor: Tensor, data: Tensor) -> None:
    """Let *tensor* have the data of *data*, and be virtual if that is."""
    if isinstance(tensor, FakeTensor) or not isinstance(data, FakeTensor):
        _DATA.__set__(tensor, data)
        return
    virtual: Any = (
        nn.Parameter(data, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else data.detach()
    )
    tensor.__class__, virtual.__class__ = virtual.__class__, tensor.__class__
    tensor.__dict__, virtual.__dict__ = virtual.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, virtual)


def _with_value(resize: Callable[..., None]) -> Callable[..., None]:
    """Return *resize*, which frees or allocates the memory of a tensor, for that of its value, too."""

    def resize_both(tensor: Tensor, *size: Any) -> None:
        resize(tensor, *size)
        value = value_of(tensor)
        if value is not None and value is not tensor:
            storage, nbytes = value.untyped_storage(), tensor.untyped_storage().nbytes()
            devices = CudaDevices.here()
            if devices is None or devices.gpu.graph is None:
                storage.resize_(nbytes)
            else:
                devices.gpu.graph.resize(storage, nbytes)

    return resize_both


_init_shards: Any = vars(FlatParamHandle)["_init_shard_metadata"]


def _note_shards(handle: Any, *args: Any) -> None:
    """Find out what of each parameter lies in this rank's part of a flat one: on others it may be less.

    Where the script has the flat parameter, it is all one to it.
    """
    _init_shards(handle, *args)
    if handle._use_orig_params:
        flat = handle.flat_param
        note_division(Flat(flat._numels_with_padding, handle.world_size, flat.numel()))


def _chunked(tensor: Tensor, num_chunks: int, dim: int = 0) -> Any:
    note_division(Rows(tensor.size(dim), num_chunks))
    return _CHUNKED(tensor, num_chunks, dim)


class _Chunks:
    """The chunks of a tensor along a dimension, each cut when it is asked for; empty ones at the end.

    They are those of ``torch.chunk``.
    """

    def __init__(self, tensor: Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // num_chunks)
        note_division(Rows(tensor.size(dim), num_chunks))

    def __getitem__(self, number: int) -> Tensor:
        size = self._tensor.size(self._dim)
        first, last = (min(at * self._size, size) for at in (number, number + 1))
        if first == last:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, first, last - first)
