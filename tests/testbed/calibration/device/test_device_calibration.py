"""Calibration of a device: the file predicts what was measured, and a short real one is a device."""

import pytest
import torch

from sim.files.device_file import parse_device
from sim.units import SECOND
from testbed.calibration.device.calibration import device_file_text, fit
from testbed.calibration.device.cases import cases
from testbed.calibration.device.measuring import MeasuredKernel, measured_kernels
from testbed.errors import UsageError

LAUNCH, FLOPS, BANDWIDTH = 2e-6, 1e11, 1e10


def product(m, n, k, seconds=None):
    flops, nbytes = 2 * m * n * k, 4 * (m * n + n * k + m * k)
    taken = LAUNCH + flops / FLOPS if seconds is None else seconds
    return MeasuredKernel("product", "float32", {"m": m, "n": n, "k": k}, flops, nbytes, (2 * taken, taken))


def addition(nbytes):
    return MeasuredKernel("add", "float32", {"bytes": nbytes}, 0, nbytes, (LAUNCH + nbytes / BANDWIDTH,))


RECORDED = [
    *(product(m, n, k) for m in (1, 64, 1024) for n in (1, 64, 1024) for k in (1, 64, 1024)),
    *(addition(nbytes) for nbytes in (12, 12 * 2**10, 12 * 2**20)),
]


def test_a_fitted_device_takes_for_each_large_kernel_what_was_measured():
    device = parse_device(device_file_text(fit(RECORDED), "recorded", "a test"), "mine", "mine.toml")

    for kernel in RECORDED:
        table = device.kernels[kernel.operation, kernel.dtype]
        predicted = table.duration_ps(kernel.flops or kernel.nbytes, kernel.shape) / SECOND
        assert table.covers(kernel.shape)
        if kernel.fastest > 10 * LAUNCH:
            assert predicted == pytest.approx(kernel.fastest, rel=0.002)
        else:
            assert kernel.fastest * 0.99 <= predicted <= kernel.fastest * 1.11


def test_peaks_are_those_of_the_fastest_and_the_fastest_round_counts():
    large = MeasuredKernel("attention", "float32", {"keys": 64, "head": 32}, 10**9, 2**20, (0.02,))

    fitted, without_a_small_shape = fit(RECORDED), fit([*RECORDED, large]).kernels[-1]

    assert fitted.peaks["float32"] == pytest.approx(FLOPS, rel=0.001)
    assert fitted.memory_bandwidth == pytest.approx(BANDWIDTH, rel=0.001)
    assert fitted.launch_ps == pytest.approx(LAUNCH * SECOND, rel=0.01)
    assert {own.spread for own in fitted.kernels} == {0.0, 1.0}
    assert without_a_small_shape.launch_ps == fitted.launch_ps
    with pytest.raises(UsageError, match="cannot fit a device without measured products"):
        fit([addition(12)])


@pytest.mark.costly
def test_every_kind_is_listed_under_the_name_by_which_it_is_measured():
    small = {}
    for case in cases(accelerator=False):
        small.setdefault(case.name, case)

    measured, refused = measured_kernels(
        torch.device("cpu"), ["float32"], lambda *_: None, lambda case: case.sizes == small[case.name].sizes
    )

    assert refused == []
    assert {kernel.operation for kernel in measured} == set(small)
