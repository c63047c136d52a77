"""GPUs as tables of measurements name them, and the device file that says how fast each is."""

from __future__ import annotations

from functools import cache

from collectives.virtual.computation.launches import Launches
from sim.files.device_file import device_names, load_device
from sim.hardware import Clocks, Device
from testbed.errors import UsageError

_NEAREST = {
    "a100": "a100", "a800": "a100", "a30": "a100", "a10": "a100", "l4": "a100", "l40": "a100", "rtx": "a100",
    "v100": "v100",
    "h100": "h100", "h800": "h100", "h20": "h100", "gh200": "h200", "h200": "h200",
    "gb300": "gb300", "gb200": "gb200", "b300": "b300", "b200": "b200", "b100": "b200",
}  # fmt: skip
"""Device files by how names of GPUs begin, the longest beginning first."""


def device_name(gpu: str) -> str:
    """Return the name of the device file of a *gpu* such as ``h100_sxm``, or of the nearest.

    Raises:
        UsageError: nothing is near.
    """
    plain = gpu.lower().replace("-", "_")
    if plain == "a100_40gb":
        return "a100-40gb"
    for begin in sorted(_NEAREST, key=len, reverse=True):
        if plain.startswith(begin):
            return _NEAREST[begin]
    raise UsageError(f"gpu {gpu}: expected one whose name begins with {', '.join(_NEAREST)}")


def has_file(gpu: str) -> bool:
    """Return whether there is a device file for *gpu* itself."""
    plain = gpu.lower().removesuffix("_sxm").removesuffix("_80gb").replace("_", "-")
    return plain in device_names()


@cache
def device_of(gpu: str) -> Device:
    """Return the device that stands for *gpu*."""
    return load_device(device_name(gpu))


@cache
def launches_on(gpu: str, clocks: Clocks) -> Launches:
    """Return what operations launch on *gpu*, as a run charges them, at these *clocks*."""
    return Launches(device_of(gpu), clocks=clocks)
