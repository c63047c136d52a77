"""Models of computation by name, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from collectives.errors import NotSupportedError
from collectives.virtual.computation.model import ComputeModel, Measured
from collectives.virtual.computation.recorded import Recorded
from collectives.virtual.computation.roofline import Roofline
from sim.errors import DeviceFileError
from sim.files.device_file import load_device
from sim.hardware import Device


def parse_compute(
    text: str, load_profile: Callable[[str], Mapping[str, int]] | None = None
) -> ComputeModel | None:
    """Return the model that *text* names; None for ``none``.

    ``h100`` or ``FILE.toml`` is a roofline of that device, with ``:tf32`` behind it one whose products of
    float32 are in tfloat32, with ``:500W`` one whose board may take no more, and with ``:fa1_2023`` one
    that runs this family of attention kernels, which its file has rates of; ``measured`` is CPU time,
    ``measured:0.1`` a tenth of it; ``profile:FILE`` is a recorded profile.

    Args:
        text: the name.
        load_profile: returns what a profile charges, by its name; profiles are known above this package.

    Raises:
        DeviceFileError: there is no such device.
        NotSupportedError: no such model, a factor that is no number above 0, or no profiles here; or the
            device has no such kernels.
    """
    kind, _, rest = text.partition(":")
    if text == "none":
        return None
    if kind == "measured":
        try:
            return Measured(float(rest or 1))
        except ValueError:
            raise NotSupportedError(f"measured: expected a factor such as 0.1, got {rest!r}") from None
    if kind == "profile":
        if load_profile is None:
            raise NotSupportedError(
                f"{text}: no profiles can be read here; make a Recorded of what it charges"
            )
        return Recorded(load_profile(rest), rest)
    plain = text.removesuffix(":tf32")
    tf32 = plain != text
    name, _, family = plain.rpartition(":")
    try:
        if name:
            return Roofline(_with(load_device(name), family), tf32)
        return Roofline(plain, tf32)
    except DeviceFileError as error:
        if (name or plain).endswith(".toml"):
            raise
        raise DeviceFileError(f"{error}; or else measured, measured:FACTOR, profile:FILE or none") from None


def _with(device: Device, family: str) -> Device:
    """Return *device* with a limit such as ``500W``, or with attention kernels of this *family*."""
    if family.endswith("W") and family[:-1].isdecimal():
        try:
            limited = device.limited(int(family[:-1]))
        except ValueError as error:
            raise NotSupportedError(f"{device.name}:{family}: {error}") from None
        return replace(limited, name=f"{device.name} at {family[:-1]} W")
    if family not in device.attention:
        known = ", ".join(["tf32", "500W", *device.attention])
        raise NotSupportedError(f"{device.name}:{family}: expected one of {known} behind {device.name}")
    return replace(device, name=f"{device.name} with {family}", attention_kernels=family)
