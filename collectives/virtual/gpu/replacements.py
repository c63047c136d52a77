"""Attributes of torch that look at a device's memory, the build or a tensor's class, and what stands there.

On other threads than those of ranks with virtual CUDA tensors each is torch's own.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
import torch._dynamo  # it checks the signatures of what is replaced here, when it is imported
import torch.distributed.distributed_c10d as c10d
import torch.optim.optimizer as optimizer
import torch.utils._foreach_utils as foreach_utils
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from collectives.virtual.gpu import build, conversion, copies, data_dependent, persistence
from collectives.virtual.gpu.accelerator import CudaDevices, index_of, is_torch, number_of
from collectives.virtual.gpu.device_random import DefaultGenerator
from collectives.virtual.gpu.functions import ACCELERATOR, CUDA, NVTX
from collectives.virtual.gpu.shapes import forget_kind
from collectives.virtual.gpu.values import set_value, share_value, value_of
from collectives.virtual.isolation.patching import Replacement, class_in_place, on_ranks
from collectives.virtual.streams.stream_api import DeviceEvent, DeviceStream

on_cuda_ranks = functools.partial(on_ranks, here=CudaDevices.here)
"""Returns what is virtual, called with the `CudaDevices`, on threads that have them, else the original.

A call does not ask for them: a rank that has none by now goes on without.
"""


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own while ranks run."""
    yield from _device_modules()
    yield from _tensors()
    yield from _lists_of_types()
    yield from build.replacements()
    yield fake_tensor, "init_gpu_context", lambda device: None  # it would allocate
    yield FakeTensorMode, "__deepcopy__", lambda mode, memo: mode  # a copied tensor is of the same rank
    yield FakeTensorMode, "avoid_device_init", property(lambda mode: True)  # it asks for the first device
    yield from conversion.replacements()
    for module in (c10d, torch.distributed):
        yield module, "is_nccl_available", _to_scripts(c10d.is_nccl_available)
        yield module, "init_process_group", on_cuda_ranks(_init_process_group, _init_without_device)
    flexible = sys.modules["torch._higher_order_ops.flex_attention"]  # a function has the name there
    trace = flexible.create_fw_bw_graph
    yield flexible, "create_fw_bw_graph", on_cuda_ranks(trace, _without_modes(trace))
    yield from persistence.replacements()
    yield torch.UntypedStorage, "data_ptr", on_methods(_storage_address, _address)
    yield torch.backends.cudnn, "is_acceptable", on_cuda_ranks(_is_acceptable, lambda *args: False)
    yield _Workers, "__init__", on_cuda_ranks(_Workers.__init__, _start_workers(_Workers.__init__))
    yield _Workers, "_next_data", on_cuda_ranks(_Workers._next_data, _pinning(_Workers._next_data))


def _without_modes(trace: Any) -> Callable[..., Any]:
    """Return *trace*, which records what a function does to examples, seen by their own fake mode alone.

    Beneath a device's mode, what the function makes of the examples stood in the trace as constants.
    """

    def traced(devices: CudaDevices, function: Any, examples: Any, others: Any) -> Any:
        if not isinstance(examples[0], FakeTensor):
            return trace(function, examples, others)
        with _disable_current_modes(), examples[0].fake_mode:
            return trace(function, examples, others)

    return traced


def _of_devices(original: Any, virtual: Callable[..., Any]) -> Any:
    """Return the same for a function of devices: a rank that has none gets them when its script calls it."""

    @functools.wraps(original)
    def called(*args: Any, **options: Any) -> Any:
        devices = CudaDevices.for_code(sys._getframe(1))
        return original(*args, **options) if devices is None else virtual(devices, *args, **options)

    return called


def _to_scripts(original: Callable[[], bool]) -> Callable[[], bool]:
    """Return what is true for scripts of ranks with devices; torch would look for what NCCL's build has."""

    @functools.wraps(original)
    def called() -> bool:
        return original() if CudaDevices.here() is None or is_torch(sys._getframe(1)) else True

    return called


class _AreInUse:
    """``torch.cuda._initialized``, true on threads that use devices: checkpoints and meshes ask."""

    def __bool__(self) -> bool:
        devices = CudaDevices.here()
        return devices is not None and devices.gpu.in_use


class _DefaultGenerators:
    """``torch.cuda.default_generators``: of each device of the node, on ranks that have devices."""

    def __len__(self) -> int:
        devices = CudaDevices.for_code(sys._getframe(1))
        return len(_default_generators) if devices is None else devices.num_devices

    def __getitem__(self, index: int) -> Any:
        devices = CudaDevices.for_code(sys._getframe(1))
        if devices is None:
            return _default_generators[index]
        number = range(devices.num_devices)[index]
        return DefaultGenerator(devices.random, torch.device("cuda", number))


_default_generators = torch.cuda.default_generators


def _device_modules() -> Iterator[Replacement]:
    yield torch.cuda, "_initialized", _AreInUse()
    yield torch.cuda, "default_generators", _DefaultGenerators()
    for module, functions in (
        (torch.cuda, CUDA),
        (torch.cuda.random, CUDA),
        (torch.cuda.memory, CUDA),
        (torch.cuda.graphs, CUDA),
        (torch.accelerator, ACCELERATOR),
        (torch.accelerator.memory, ACCELERATOR),
        (torch.cuda.nvtx, NVTX),
    ):
        for name in functions.keys() & vars(module).keys():
            original, virtual = getattr(module, name), functions[name]
            if inspect.isclass(original):
                yield module, name, _class_of(original, virtual, *filter(inspect.isclass, [virtual]))
            else:
                yield module, name, _of_devices(original, virtual)

    for module in (torch.cuda, torch):
        yield module, "Stream", _class_of(module.Stream, _new_stream, DeviceStream)
        yield module, "Event", _class_of(module.Event, _new_event, DeviceEvent)
    yield torch, "Generator", _class_of(torch.Generator, _generator, asks_for_devices=False)


def _class_of(
    original: Any, virtual: Callable[..., Any], *stands_for: type, asks_for_devices: bool = True
) -> type:
    """Return a class in the place of *original*, whose instances are made by *virtual* on CUDA ranks."""

    def made(frame: FrameType, *args: Any, **options: Any) -> Any:
        devices = CudaDevices.for_code(frame) if asks_for_devices else CudaDevices.here()
        return original(*args, **options) if devices is None else virtual(devices, *args, **options)

    return class_in_place(original, made, *stands_for)


def _new_stream(devices: CudaDevices, device: Any = None, priority: int = 0, **other: Any) -> DeviceStream:
    return devices.gpu.new_stream(priority)


def _new_event(devices: CudaDevices, *args: Any, **options: Any) -> DeviceEvent:
    return DeviceEvent(devices.gpu, *args, **options)


def _generator(devices: CudaDevices, device: Any = "cpu") -> torch.Generator:
    return _Generator("cpu" if torch.device(device).type == "cuda" else device)


_Generator = torch.Generator


_init_process_group = c10d.init_process_group


def _init_without_device(devices: CudaDevices, *args: Any, device_id: Any = None, **options: Any) -> None:
    """Make the default group; torch does not learn its device, for which it would want to split it in C++."""
    index = index_of(device_id)
    devices.bound = None if index is None else number_of(index)
    _init_process_group(*args, **options)


_is_acceptable = torch.backends.cudnn.is_acceptable
_Workers: Any = torch.utils.data.dataloader._MultiProcessingDataLoaderIter


def _start_workers(start: Callable[..., None]) -> Callable[..., None]:
    """Return what starts the workers of a loader, but no thread that pins their batches."""

    def started(devices: CudaDevices, iterator: Any, loader: Any) -> None:
        pins, loader.pin_memory = loader.pin_memory, False
        try:
            start(iterator, loader)
        finally:
            loader.pin_memory = pins
        iterator._pins = pins

    return started


def _pinning(next_data: Callable[..., Any]) -> Callable[..., Any]:
    """Return what gets the next batch, in pinned memory, where another thread would have copied it."""

    def pinned(devices: CudaDevices, iterator: Any) -> Any:
        batch = next_data(iterator)
        if not iterator._pins:
            return batch
        with _disable_current_modes():
            return torch.utils.data._utils.pin_memory.pin_memory(batch)

    return pinned


# ---------------------------------------------------------------- tensors


def _tensors() -> Iterator[Replacement]:
    """Yield methods that torch has in C++ alone, or not for subclasses."""
    yield Tensor, "record_stream", on_cuda_ranks(Tensor.record_stream, CudaDevices.record_stream)
    yield Tensor, "pin_memory", on_methods(Tensor.pin_memory, _pinned)
    yield Tensor, "is_pinned", on_methods(Tensor.is_pinned, lambda tensor, *args: copies.is_pinned(tensor))
    yield FakeTensor, "data_ptr", _place  # torch's own gives 0, and a warning
    yield FakeTensor, "__format__", data_dependent.written
    yield FakeTensor, "__dlpack__", data_dependent.capsule
    yield FakeTensor, "__repr__", _shown
    for name, type_of_number in (("__bool__", bool), ("__float__", float), ("__complex__", complex)):
        yield FakeTensor, name, data_dependent.as_number(type_of_number)
    yield FakeTensor, "__int__", data_dependent.integer
    yield FakeTensor, "__index__", data_dependent.integer
    yield FakeTensor, "tolist", on_ranks(FakeTensor.tolist, data_dependent.listed)
    yield FakeTensor, "numpy", data_dependent.array
    yield FakeTensor, "data", property(Tensor.data.__get__, _set_data)  # type: ignore[attr-defined]


def _address(storage: torch.UntypedStorage) -> int:
    """Return an address of the memory of *storage*, by which FSDP1 asks whether it is there, and the same."""
    is_virtual = storage.device.type == "meta" and storage.nbytes() > 0
    return storage._cdata if is_virtual else _storage_address(storage)


_storage_address = torch.UntypedStorage.data_ptr


def _place(tensor: Tensor) -> int:
    """Return an address of *tensor*, by which scripts ask what lies where; 0 to torch's deep copies.

    By 0 these know that the tensor is without memory, and is to be cloned.
    """
    storage = tensor.untyped_storage()
    if not storage.nbytes() or sys._getframe(1).f_code is _deep_copy:
        return 0
    address: int = storage._cdata // 16 << 20
    return address + int(tensor.storage_offset()) * tensor.itemsize


_deep_copy: Any = Tensor.__deepcopy__.__code__


def on_methods(original: Any, virtual: Callable[..., Any]) -> Any:
    """Return what is *virtual* on threads of CUDA ranks, else *original*; both get the object."""
    return on_cuda_ranks(original, lambda devices, *args, **options: virtual(*args, **options))


def _pinned(tensor: Tensor, *args: Any) -> Tensor:
    return tensor if isinstance(tensor, FakeTensor) else copies.pinned(tensor)


_repr: Callable[..., str] = Tensor.__repr__


def _shown(tensor: FakeTensor, *, tensor_contents: Any = None) -> str:
    """Return what is printed of a tensor: its value, as of one on the device, where it is known."""
    if value_of(tensor) is None:
        return _repr(tensor, tensor_contents=tensor_contents)
    text = repr(data_dependent.on_host(tensor))
    device = f", device='{tensor.device}'" if tensor.is_cuda else ""
    function = "" if tensor.grad_fn is None else f", grad_fn=<{tensor.grad_fn.name()}>"
    gradient = ", requires_grad=True" if tensor.requires_grad and not function else ""
    return f"{text[:-1]}{device}{function}{gradient})"


def _set_data(tensor: FakeTensor, data: Tensor) -> None:
    """Let *tensor* have the data of *data*; of a plain one it has the shape, and the data as its value."""
    if isinstance(data, FakeTensor):
        virtual = data
    else:
        empty = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="meta")
        virtual = FakeTensor(tensor.fake_mode, empty, data.device)
        set_value(virtual, None if data.is_meta else data.detach())
    Tensor.data.__set__(tensor, virtual)  # type: ignore[attr-defined]
    tensor.fake_device = virtual.fake_device
    forget_kind(tensor)
    share_value(tensor, virtual)


def _lists_of_types() -> Iterator[Replacement]:
    """Yield lists of the types that foreach operations take, with virtual tensors among them."""
    for module, name in (
        (optimizer, "_foreach_supported_types"),
        (foreach_utils, "_foreach_supported_types"),
    ):
        if hasattr(module, name):
            yield module, name, [*getattr(module, name), FakeTensor]
