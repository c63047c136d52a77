"""Devices in files: a few lines of TOML, as ``docs/files.md`` describes them.

    schema = 1
    description = "what it is"               # optional
    source = "where the numbers are from"    # optional
    memory_bandwidth = "3.35TB/s"
    memory_efficiency = 0.84                 # optional: the part of it that kernels reach
    launch_overhead = "2.5us"                # optional

    [bfloat16]                               # and float64, float32, tfloat32, float16, float8
    peak = "989.4TFLOP/s"
    efficiency = 0.8                         # optional: the part of it that matrix products reach

The files in ``sim/devices`` are known by their names.
"""

from __future__ import annotations

from os import PathLike
from typing import Literal

from pydantic import Field, ValidationError

from sim.errors import DeviceFileError
from sim.files.fields import Bandwidth, Efficiency, Fields, Rate, Time, effective
from sim.files.named import names_in, parse, read
from sim.files.problems import fields_of, problems
from sim.files.toml_lines import Place, key_lines
from sim.hardware import Device

TYPES = ("float64", "float32", "tfloat32", "bfloat16", "float16", "float8")
"""Types that a device may have a rate for."""


class RateTable(Fields):
    """How fast matrix products of one type are, with dense matrices."""

    peak: Rate
    efficiency: Efficiency = 1.0


class DeviceTable(Fields):
    """What a device file may say."""

    schema_version: Literal[1] = Field(alias="schema")
    description: str = ""
    source: str = ""
    memory_bandwidth: Bandwidth
    memory_efficiency: Efficiency = 1.0
    launch_overhead: Time = 0
    float64: RateTable | None = None
    float32: RateTable | None = None
    tfloat32: RateTable | None = None
    bfloat16: RateTable | None = None
    float16: RateTable | None = None
    float8: RateTable | None = None

    def device(self, name: str) -> Device:
        """Return what the file describes."""
        tables = {dtype: getattr(self, dtype) for dtype in TYPES}
        return Device(
            name=name,
            rates={
                dtype: effective(table.peak, table.efficiency) for dtype, table in tables.items() if table
            },
            memory_bandwidth=effective(self.memory_bandwidth, self.memory_efficiency),
            launch_ps=self.launch_overhead,
            description=self.description,
            source=self.source,
        )


def device_names() -> tuple[str, ...]:
    """Return the names of the devices that come with the package, sorted."""
    return names_in("devices")


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
        raise DeviceFileError(f"{file}: {problems(error, key_lines(text), _known, 'a device')}") from error


def _known(place: Place) -> list[str]:
    """Return the fields of the table in which the field *place* stands."""
    return fields_of(DeviceTable if len(place) == 1 else RateTable)
