"""Devices by name and from files; whatever is wrong in a file is named."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Device, DeviceFileError, device_names, load_device
from sim.files.device_file import TYPES, parse_device
from sim.hardware import AttentionRates, ProductConstants
from sim.units import SECOND

GOOD = """
schema = 1
memory_bandwidth = "2TB/s"
memory_efficiency = 0.5
launch_overhead = "3us"

[float32]
peak = "20TFLOP/s"
efficiency = 0.75
"""


@pytest.mark.parametrize("name", device_names())
def test_a_device_that_ships_computes_in_the_common_types_and_says_where_it_is_from(name):
    device = load_device(name)

    assert device.name == name
    assert {"float64", "float32", "float16"} <= set(device.rates) <= set(TYPES)
    assert device.rates["float64"] <= device.rates["float32"] <= device.rates["float16"]
    assert device.description
    assert all(
        word in device.source.lower() for word in ("peak" if name != "laptop-cpu" else "avx2", "launch")
    )


def test_a_file_describes_a_device_by_what_of_its_peaks_is_reached(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)

    peaks = {"float32": 20 * 10**12}
    assert load_device(path) == Device(
        "mine",
        {"float32": 15 * 10**12},
        10**12,
        launch_ps=3_000_000,
        peaks=peaks,
        peak_memory_bandwidth=2 * 10**12,
    )


GPU = """
schema = 1
memory_bandwidth = "2TB/s"
kind = "gpu"
memory = "80GB"
multiprocessors = 108
host_overhead = "5us"
host_to_device = "25GB/s"
communication_share = 0.25
attention_kernels = "new"

[bfloat16]
peak = "300TFLOP/s"
efficiency = 0.9
sustained = 0.75

[tfloat32]
peak = "150TFLOP/s"
convolution = 0.5
products = {burst = 0.8, steady = 0.6, small = 4, edge = 100, wave = 0.5, load = 0.2, memory = 0.5}

[attention.old]
forward = 0.25
backward = 0.2
heads = {128 = 1, 64 = 0.5}
floor = "8us"

[attention.new]
forward = 0.5
backward = 0.4
"""


def test_a_gpu_says_how_much_memory_it_has_and_what_launches_and_copies_cost():
    gpu = parse_device(GPU, "mine", "mine.toml")

    assert (gpu.kind, gpu.memory_bytes, gpu.multiprocessors) == ("gpu", 80 * 2**30, 108)
    assert (gpu.host_overhead_ps, gpu.copy_bandwidth) == (5_000_000, 25 * 10**9)
    assert gpu.communication_share == 0.25
    assert gpu.rates == {"tfloat32": 150 * 10**12, "bfloat16": 270 * 10**12}
    assert gpu.products["bfloat16"].rate("training") == 225e12
    assert gpu.products["tfloat32"] == ProductConstants(
        120e12, 90e12, 90e12, bandwidth=10**12, load=0.2, small=4.0, edge=100.0, wave=0.5
    )
    assert gpu.convolutions == {"tfloat32": 0.5}
    assert gpu.attention == {
        "old": AttentionRates(0.25, 0.2, {64: 0.5, 128: 1.0}, floor_ps=8_000_000),
        "new": AttentionRates(0.5, 0.4),
    }
    assert gpu.attention_kernels == "new"


def test_a_lower_power_limit_slows_what_is_sustained_by_its_cube_root_and_no_burst():
    def constants(power):
        return parse_device(GPU.replace("[bfloat16]", f"{power}\n[bfloat16]"), "mine", "").products[
            "tfloat32"
        ]

    whole, limited = constants("power = 800"), constants("power = 800\npower_limit = 100")

    assert limited.burst == whole.burst
    assert limited.training == pytest.approx(whole.training / 2)
    assert limited.steady == pytest.approx(whole.steady / 2)
    assert constants("power = 800\npower_limit = 800") == whole


KERNELS = f"""{GOOD}
[[kernels]]
operation = "product"
dtype = "float32"
axes = {{m = [64, 1024], n = [64, 1024], k = [1024]}}
efficiency = [0.1, 0.2, 0.2, 0.8]

[[kernels]]
operation = "add"
dtype = "int64"
of = "memory"
launch_overhead = "1us"
axes = {{bytes = [1024]}}
efficiency = [1.5]
"""


def test_rates_of_kernels_are_parts_of_the_peak_of_their_type_or_of_the_memory():
    device = parse_device(KERNELS, "mine", "mine.toml")
    product, add = device.kernels["product", "float32"], device.kernels["add", "int64"]

    assert product.rates == (2 * 10**12, 4 * 10**12, 4 * 10**12, 16 * 10**12)
    assert (product.work, product.launch_ps) == ("arithmetic", device.launch_ps)
    assert (add.work, add.rates, add.launch_ps) == ("bytes", (3 * 10**12,), 10**6)


@given(
    operations=st.integers(0, 10**18),
    nbytes=st.integers(0, 10**15),
    rate=st.integers(1, 10**16),
    bandwidth=st.integers(1, 10**14),
    launch_ps=st.integers(0, 10**9),
)
def test_an_operation_takes_the_longer_of_arithmetic_and_memory_and_its_launch(
    operations, nbytes, rate, bandwidth, launch_ps
):
    device = Device("any", {"float32": rate}, bandwidth, launch_ps)
    exact = max(Fraction(operations, rate), Fraction(nbytes, bandwidth)) * SECOND

    assert 0 <= device.duration_ps(operations, nbytes, "float32") - launch_ps - exact < 1


WRONG = [
    (GOOD, "memory_bandwidth", "memory_bandwith", r"line 3: memory_bandwith: unknown .* mean 'memory_band"),
    (GOOD, '"20TFLOP/s"', '"20TB/s"', "line 8: float32, peak: cannot read '20TB/s'; expected a rate such as"),
    (GOOD, "0.75", "1.5", "line 9: float32, efficiency: input should be less than or equal to 1, got 1.5"),
    (GOOD, "efficiency = 0.75", "speed = 1", "line 9: float32, speed: unknown field"),
    (GOOD, "[float32]", "[float31]", r"line 7: float31: unknown .* mean 'float32'\?\); a device has the"),
    (GOOD, "schema = 1", "schema = 2", "line 2: schema: input should be 1, got 2"),
    (GOOD, "[float32]", "[float32", "not a TOML file"),
    (GPU, '"gpu"', '"tpu"', "line 4: kind: input should be 'cpu' or 'gpu', got 'tpu'"),
    (GPU, '"80GB"', '"80TFLOP"', "line 5: memory: cannot read '80TFLOP'; expected"),
    (GPU, '"80GB"', "0", "line 5: memory: input should be greater than or equal to 1, got 0"),
    (GPU, "0.25", "1.0", "line 9: communication_share: input should be less than 1, got 1.0"),
    (GPU, '= "new"', '= "newer"', r"line 10: attention_kernels: no table \[attention.newer\]; expected one"),
    (GPU, "64 = 0.5", "wide = 0.5", "line 25: attention, old, heads: expected dimensions of heads"),
    (GPU, "kind =", "power_limit = 5\nkind =", "line 4: power_limit: mine does not state of which power"),
    (GPU, "backward = 0.2", "back = 0.2", "line 24: attention, old, back: unknown field"),
    (KERNELS, "0.2, 0.8", "0.8", "line 15: kernels 1, efficiency: expected a rate for each of the 4"),
    (KERNELS, "[64, 1024], k", "[64, 64], k", "line 15: kernels 1, efficiency: axis n: expected"),
    (KERNELS, '"float32"\na', '"float64"\na', "line 13: kernels 1, dtype: float64 has no peak here; ex"),
    (KERNELS, '"add"\ndtype = "int64"', '"product"\ndtype = "float32"', "line 18: kernels 2, operation: a"),
    (KERNELS, "axes = {m", "axis = {m", r"line 14: kernels 1, axis: unknown field \(did you mean 'axes'\?\)"),
    (KERNELS, "[1.5]", "[-1]", "line 23: kernels 2, efficiency 1: input should be greater than 0, got -1"),
]  # fmt: skip


def test_a_type_that_the_device_has_no_rate_for_matters_only_where_there_is_arithmetic():
    device = Device("any", {}, 10**9)

    assert device.duration_ps(0, 5, "int64") == 5000
    with pytest.raises(KeyError):
        device.duration_ps(1, 5, "int64")


def test_an_unknown_device_is_refused_with_the_nearest_name():
    with pytest.raises(
        DeviceFileError, match=r"unknown device 'h10' \(did you mean 'h100'\?\); expected one of a100"
    ):
        load_device("h10")


@pytest.mark.parametrize(("text", "old", "new", "said"), WRONG)
def test_what_is_wrong_in_a_file_is_named_with_its_line(text, old, new, said):
    assert old in text

    with pytest.raises(DeviceFileError, match=said):
        parse_device(text.replace(old, new, 1), "mine", "mine.toml")
