"""Device files of what was fitted: the text that `sim.files.device_file` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

from testbed.calibration.device.fitting import FittedDevice, FittedKernels


def device_file_text(device: FittedDevice, description: str, source: str) -> str:
    """Return the device file of *device*.

    Args:
        device: what was found.
        description: what it is, in a line.
        source: how it was measured; may have several lines.
    """
    lines = [
        "schema = 1",
        f"description = {json.dumps(description)}",
        f'memory_bandwidth = "{device.memory_bandwidth / 1e9:.4g}GB/s"',
        f"memory_efficiency = {device.memory_reached:.4g}",
        f'launch_overhead = "{device.launch_ps / 1e6:.4g}us"',
        f'source = """\n{source}\n"""',
    ]
    for dtype, peak in device.peaks.items():
        lines += ["", f"[{dtype}]", f'peak = "{_gflops(peak)}"', f"efficiency = {device.reached[dtype]:.4g}"]
    for kernels in device.kernels:
        lines += ["", *_table(kernels, device)]
    return "\n".join([*lines, ""])


def _table(kernels: FittedKernels, device: FittedDevice) -> Iterator[str]:
    memory_bound = kernels.work == "bytes"
    peak = device.memory_bandwidth if memory_bound else device.peaks[kernels.dtype]
    axes = ", ".join(f"{name} = {list(sizes)}" for name, sizes in kernels.axes.items())
    yield "[[kernels]]"
    yield f'operation = "{kernels.operation}"'
    yield f'dtype = "{kernels.dtype}"'
    if memory_bound:
        yield 'of = "memory"'
    yield f'launch_overhead = "{kernels.launch_ps / 1e6:.4g}us"'
    yield f"axes = {{{axes}}}"
    yield "efficiency = ["
    row = len([*kernels.axes.values()][-1])
    for begin in range(0, len(kernels.rates), row):
        figures = (f"{rate / peak:.4g}" for rate in kernels.rates[begin : begin + row])
        yield f"    {', '.join(_as_float(figure) for figure in figures)},"
    yield "]"


def _gflops(rate: float) -> str:
    return f"{rate / 1e9:.5g}GFLOP/s"


def _as_float(figure: str) -> str:
    """Return *figure* as TOML writes a number with a fraction."""
    return figure if any(mark in figure for mark in ".e") else f"{figure}.0"
