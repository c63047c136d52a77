"""Devices in files: a few lines of TOML, as ``docs/files.md`` describes them.

    schema = 1
    description = "what it is"               # optional
    source = "where the numbers are from"    # optional
    memory_bandwidth = "3.35TB/s"
    memory_efficiency = 0.84                 # optional: the part of it that kernels reach
    launch_overhead = "2.5us"                # optional

    kind = "gpu"                             # optional: kernels run on streams while the host goes on
    memory = "80GB"                          # optional
    multiprocessors = 132                    # optional
    host_overhead = "5us"                    # optional: the host's time for an operation
    host_boundary = "30us"                   # optional: Python's besides, for a module's call and the like
    host_enqueue = "40us"                    # optional: the host's besides, for a collective
    host_to_device = "50GB/s"                # optional: copies between host and device, one way
    communication_share = 0.15               # optional: what collectives take from computation
    power = 700                              # optional: watts of the board that the constants are of
    power_limit = 500                        # optional: watts that it may take, at most those
    fitted_ranks = 8                         # optional: of the steps to which sustained rates were fitted
    attention_kernels = "fa2"                # optional: which of the tables below
    expert_kernels = "cutlass"               # optional: likewise, of grouped products

    [bfloat16]                               # and float64, float32, tfloat32, float16, float8, …
    peak = "989.4TFLOP/s"
    efficiency = 0.8                         # optional: the part of it that matrix products reach
    sustained = 0.6                          # optional: the part that the largest tiles reach in training
    convolution = 1.0                        # optional: the part of that which convolutions reach
    products = {burst = 0.9, steady = 0.7, small = 2, edge = 180, wave = 0.9, load = 0.2,
                launch = "3us", memory = 0.8}   # optional: by shape, see sim.hardware.products

    [attention.fa2]                          # optional: fused attention, parts of the peak of a type
    forward = 0.36
    backward = 0.33
    heads = {64 = 0.8, 128 = 1}              # optional: parts of that, by the dimension of a head
    edge = 100                               # optional: see sim.hardware.attention
    memory = 0.4
    floor = "10us"

    [experts.cutlass_bfloat16]               # optional: layers of routed experts, by kernels and type
    rate = 0.6                               # see sim.hardware.experts
    floor = "25us"

    [[kernels]]                              # optional: rates by shape, one table for each kind and type
    operation = "product"
    dtype = "bfloat16"
    launch_overhead = "3us"                  # optional: else that of the device
    axes = {m = [64, 1024], n = [64, 1024], k = [1024]}
    efficiency = [0.02, 0.2, 0.2, 0.7]       # of each shape, the last axis changes fastest

A kernel's efficiency is relative to the peak of its type, or with ``of = "memory"`` to the memory's
bandwidth, which it exceeds where a cache helps.

The files in ``sim/devices`` are known by their names.
"""

from __future__ import annotations

from os import PathLike
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationError

from sim.errors import DeviceFileError
from sim.files.fields import Bandwidth, Count, Efficiency, FieldError, Fields, Rate, Size, Time, Words
from sim.files.named import names_in, parse, read
from sim.files.problems import problems, spell_place, where
from sim.files.toml_lines import key_lines
from sim.hardware import (
    AttentionRates,
    Device,
    ExpertConstants,
    Hardware,
    KernelTable,
    ProductConstants,
)
from sim.hardware.products import usual_small
from sim.units import effective

TYPES = (
    "float64", "float32", "tfloat32", "bfloat16", "float16", "float8", "float8_block", "float4"
)  # fmt: skip
"""Types that a device may have a rate for; ``float8_block`` is float8 with a scale for each block."""

Amount: TypeAlias = Annotated[float, Field(ge=0)]


class ProductTable(Fields):
    """How matrix products of one type run, as parts of its peak and by their shape."""

    burst: Efficiency
    steady: Efficiency | None = None
    small: Amount = 0.0
    edge: Amount = 0.0
    wave: Annotated[float, Field(ge=0, le=1)] = 1.0
    load: Amount = 0.0
    launch: Time | None = None
    memory: Efficiency | None = None


class RateTable(Fields):
    """How fast matrix products of one type are, with dense matrices."""

    peak: Rate
    efficiency: Efficiency = 1.0
    sustained: Efficiency | None = None
    convolution: Efficiency = 1.0
    products: ProductTable | None = None

    def constants(self, device: DeviceTable, dtype: str) -> ProductConstants | None:
        """Return how products of *dtype* run on *device*, or None if nothing is said but a rate."""
        if self.products is None and self.sustained is None:
            return None
        own = self.products or ProductTable(
            burst=self.efficiency, steady=self.sustained, small=usual_small(dtype), edge=128.0
        )
        training = self.sustained or own.steady or own.burst
        return ProductConstants(
            burst=self.peak * own.burst,
            steady=self.peak * (own.steady or training),
            training=self.peak * training,
            bandwidth=effective(device.memory_bandwidth, own.memory or device.memory_efficiency),
            launch_ps=device.launch_overhead if own.launch is None else own.launch,
            load=own.load,
            small=own.small,
            edge=own.edge,
            wave=own.wave,
        )


class AttentionTable(Fields):
    """Parts of the peak that a family of fused attention kernels reaches."""

    forward: Efficiency
    backward: Efficiency
    heads: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    edge: Amount | None = None
    memory: Annotated[float, Field(gt=0)] | None = None
    floor: Time | None = None

    def rates(self, name: str) -> AttentionRates:
        """Return them.

        Raises:
            FieldError: a dimension of heads is no whole number.
        """
        if not all(head.isascii() and head.isdecimal() for head in self.heads):
            raise FieldError(
                ("attention", name, "heads"), f"expected dimensions of heads, got {list(self.heads)}"
            )
        heads = dict(sorted((int(head), part) for head, part in self.heads.items()))
        return AttentionRates(self.forward, self.backward, heads, self.edge, self.memory, self.floor)


class ExpertTable(Fields):
    """How layers of routed experts run with the kernels of one library, in one type."""

    rate: Annotated[float, Field(gt=0)]
    small: Amount = 0.0
    edge: Amount = 0.0
    memory: Annotated[float, Field(gt=0)] = 1.0
    activations: Amount = 1.0
    elsewhere: Amount = 0.0
    each: Time = 0
    floor: Time = 0

    def constants(self) -> ExpertConstants:
        """Return them."""
        return ExpertConstants(
            self.rate,
            self.small,
            self.edge,
            self.memory,
            self.activations,
            self.each,
            self.floor,
            self.elsewhere,
        )


Axis: TypeAlias = Annotated[list[Count], Field(min_length=1)]


class KernelFields(Fields):
    """How near kernels of one kind and type come to a peak, by shape."""

    operation: Annotated[str, Field(min_length=1)]
    dtype: Annotated[str, Field(min_length=1)]
    of: Literal["arithmetic", "memory"] = "arithmetic"
    launch_overhead: Time | None = None
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    efficiency: list[Annotated[float, Field(gt=0)]]

    def table(self, peak: int, launch_ps: int) -> KernelTable:
        """Return what the fields say of a device with this *peak* and *launch_ps*.

        Raises:
            ValueError: they do not agree with each other.
        """
        return KernelTable(
            operation=self.operation,
            dtype=self.dtype,
            work="bytes" if self.of == "memory" else "arithmetic",
            axes={name: tuple(sizes) for name, sizes in self.axes.items()},
            rates=tuple(effective(peak, efficiency) for efficiency in self.efficiency),
            launch_ps=launch_ps if self.launch_overhead is None else self.launch_overhead,
        )


class DeviceTable(Fields):
    """What a device file may say."""

    schema_version: Literal[1] = Field(alias="schema")
    description: Words = ""
    source: Words = ""
    memory_bandwidth: Bandwidth
    memory_efficiency: Efficiency = 1.0
    launch_overhead: Time = 0
    kind: Literal["cpu", "gpu"] = "cpu"
    memory: Size | None = None
    multiprocessors: Count | None = None
    host_overhead: Time = 0
    host_boundary: Time = 0
    host_enqueue: Time = 0
    host_to_device: Bandwidth | None = None
    communication_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    power: Annotated[float, Field(gt=0)] | None = None
    power_limit: Annotated[float, Field(gt=0)] | None = None
    fitted_ranks: Count = 1
    attention_kernels: Words = ""
    expert_kernels: Words = ""
    float64: RateTable | None = None
    float32: RateTable | None = None
    tfloat32: RateTable | None = None
    bfloat16: RateTable | None = None
    float16: RateTable | None = None
    float8: RateTable | None = None
    float8_block: RateTable | None = None
    float4: RateTable | None = None
    attention: dict[str, AttentionTable] = Field(default_factory=dict)
    experts: dict[str, ExpertTable] = Field(default_factory=dict)
    kernels: tuple[KernelFields, ...] = Field(default=(), strict=False)

    def device(self, name: str) -> Device:
        """Return what the file describes.

        Raises:
            FieldError: a table of kernels does not fit the rest, or the attention kernels have no table.
        """
        if self.attention_kernels and self.attention_kernels not in self.attention:
            raise FieldError(
                ("attention_kernels",),
                f"no table [attention.{spell_place((self.attention_kernels,))}]; expected one of "
                f"{spell_place(tuple(self.attention)) or 'none, as there is no such table'}",
            )
        tables = self._tables()
        device = Device(
            name=name,
            rates={dtype: effective(table.peak, table.efficiency) for dtype, table in tables.items()},
            memory_bandwidth=effective(self.memory_bandwidth, self.memory_efficiency),
            launch_ps=self.launch_overhead,
            description=self.description,
            source=self.source,
            kernels=self._kernels(),
            kind=self.kind,
            host_overhead_ps=self.host_overhead,
            host_boundary_ps=self.host_boundary,
            host_enqueue_ps=self.host_enqueue,
            memory_bytes=self.memory,
            multiprocessors=self.multiprocessors,
            copy_bandwidth=self.host_to_device,
            communication_share=self.communication_share,
            peaks={dtype: table.peak for dtype, table in tables.items()},
            products={
                dtype: constants
                for dtype, table in tables.items()
                if (constants := table.constants(self, dtype)) is not None
            },
            convolutions={
                dtype: table.convolution for dtype, table in tables.items() if table.convolution != 1
            },
            attention={family: table.rates(family) for family, table in self.attention.items()},
            attention_kernels=self.attention_kernels,
            experts={name: table.constants() for name, table in self.experts.items()},
            expert_kernels=self.expert_kernels,
            peak_memory_bandwidth=self.memory_bandwidth,
            power=self.power,
            fitted_ranks=self.fitted_ranks,
        )
        try:
            return device if self.power_limit is None else device.limited(self.power_limit)
        except ValueError as error:
            raise FieldError(("power_limit",), str(error)) from None

    def _tables(self) -> dict[str, RateTable]:
        """Return the tables of rates, by type."""
        tables = ((dtype, getattr(self, dtype)) for dtype in TYPES)
        return {dtype: table for dtype, table in tables if table is not None}

    def _kernels(self) -> dict[tuple[str, str], KernelTable]:
        """Return the tables of kernels, by kind and type."""
        tables: dict[tuple[str, str], KernelTable] = {}
        for number, fields in enumerate(self.kernels):
            place, key = ("kernels", number), (fields.operation, fields.dtype)
            rate: RateTable | None = getattr(self, fields.dtype) if fields.dtype in TYPES else None
            if rate is None and fields.of == "arithmetic":
                raise FieldError(
                    (*place, "dtype"),
                    f"{fields.dtype} has no peak here; expected a type that the file has a table for",
                )
            if key in tables:
                raise FieldError(
                    (*place, "operation"), f"a second table of {fields.operation} in {fields.dtype}"
                )

            peak = self.memory_bandwidth if rate is None or fields.of == "memory" else rate.peak
            try:
                tables[key] = fields.table(peak, self.launch_overhead)
            except ValueError as error:
                raise FieldError((*place, "efficiency"), str(error)) from None
        return tables


def device_names() -> tuple[str, ...]:
    """Return the names of the devices that come with the package, sorted."""
    return names_in("devices")


OF_GENERATION = MappingProxyType({"volta": "v100", "ampere": "a100", "hopper": "h100", "blackwell": "b200"})
"""The device that stands for GPUs of a generation that have no file of their own."""


def device_of(hardware: Hardware) -> tuple[str, str]:
    """Return the name of the device of the GPUs that *hardware* has, and what it stands for, if for others.

    GPUs of which there is no file, and those that nobody names, have that of their generation.
    """
    if hardware.gpu in device_names():
        return hardware.gpu, ""
    return OF_GENERATION[hardware.generation], hardware.gpu or f"generation {hardware.generation}"


def load_device(name_or_path: str | PathLike[str]) -> Device:
    """Return the device of that name, or the one that the TOML file at that path describes.

    Raises:
        DeviceFileError: there is neither, or the file is not a correct description; names the
            file, the line and the field, what is allowed and what is nearest.
    """
    return parse_device(*read(name_or_path, "devices", "device", DeviceFileError))


def parse_device(text: str, name: str, file: str) -> Device:
    """Return the device that the TOML document *text* describes.

    Args:
        text: the document.
        name: of the device.
        file: where the text is from, for errors.

    Raises:
        DeviceFileError: as for `load_device`.
    """
    content = parse(text, file, DeviceFileError)
    try:
        return DeviceTable.model_validate(content).device(name)
    except ValidationError as error:
        raise DeviceFileError(
            f"{file}: {problems(error, key_lines(text), DeviceTable, 'a device')}"
        ) from error
    except FieldError as error:
        at = where(error.place, key_lines(text)) + spell_place(error.place)
        raise DeviceFileError(f"{file}: {at}: {error}") from error
