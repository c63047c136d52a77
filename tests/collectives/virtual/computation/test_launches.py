"""Launches of CUDA for torch's operations, and the time of each kernel, by hand."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.errors import NotSupportedError
from collectives.virtual.computation.cuda.experts import ExpertLayer, layer_ps, rows_of_experts
from collectives.virtual.computation.cuda.products import product_ps
from collectives.virtual.computation.launches import HOST_BANDWIDTH, Launches
from sim import Device, load_device
from sim.hardware import AttentionRates, ExpertConstants, KernelTable, ProductConstants
from sim.units import SECOND

TERA = 10**12
GPU = Device(
    "gpu",
    {"float32": TERA, "tfloat32": 8 * TERA, "bfloat16": 16 * TERA},
    memory_bandwidth=SECOND,  # a byte: 1 ps
    launch_ps=1000,
    kind="gpu",
    host_overhead_ps=5000,
    multiprocessors=10,
    copy_bandwidth=SECOND // 2,
    peaks={"float32": 2 * TERA, "tfloat32": 10 * TERA, "bfloat16": 20 * TERA},
    attention={"fast": AttentionRates(0.5, 0.25), "slow": AttentionRates(0.25, 0.125)},
    attention_kernels="fast",
)
SLOW_ARITHMETIC = replace(
    GPU, rates={"float32": 10**6, "tfloat32": 8 * 10**6, "bfloat16": 16 * 10**6}, launch_ps=0
)


class _Launched(TorchDispatchMode):
    def __init__(self, device, **options):
        super().__init__()
        self.model = Launches(device, **options)
        self.launches = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.launches += self.model.of(func, args, kwargs or {}, result)
        return result


def launched(function, device=GPU, **options):
    with _Launched(device, **options) as mode:
        function()
    return mode.launches


def meta(*shape, dtype=torch.float32, **options):
    return torch.empty(*shape, dtype=dtype, device="meta", **options)


def fused_optimizer():
    p, g, m, v = ([meta(100)] for _ in range(4))
    torch._fused_adamw_(
        p, g, m, v, [], [meta(())], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def views():
    x = meta(4, 4)
    x.t(), x.view(16), x[1:], torch.empty_like(x)


@pytest.mark.parametrize(
    ("call", "name", "nbytes"),
    [
        (lambda: meta(100) + meta(100), "add", [1200]),
        (lambda: meta(100).to(torch.bfloat16), "_to_copy", [600]),
        (lambda: torch._foreach_mul_([meta(1000)] * 300, 2.0), "_foreach_mul_", [300 * 8000]),
        (lambda: torch._foreach_mul_([meta(1000)] * 771, 2.0), "_foreach_mul_", [770 * 8000, 8000]),
        (fused_optimizer, "_fused_adamw_", [7 * 400 + 4]),  # it reads gradients once
        (views, "", []),
    ],
    ids=["addition", "conversion", "for each", "for more than fit a launch", "fused optimizer", "views"],
)
def test_what_memory_bounds_takes_its_bytes_and_a_launch(call, name, nbytes):
    assert launched(call) == [(name, own + 1000, 0, own, "", "") for own in nbytes]


def test_what_data_decide_the_size_of_takes_the_bytes_of_its_own_result():
    costs = Launches(GPU)
    tensor, mask = meta(1000, 8), meta(1000, dtype=torch.bool)

    def nbytes(selected):
        (launch,) = costs.of(torch.ops.aten.index.Tensor, (tensor, [mask]), {}, meta(selected, 8))
        return launch.nbytes

    few, many, again = nbytes(10), nbytes(900), nbytes(10)

    assert few == again
    assert many - few == 890 * 2 * 8 * 4, "rows are read and written"


def halves(*shape):
    return meta(*shape, dtype=torch.bfloat16)


def tiles_ps(*edges, depth, waves=1, split=1):
    """Return the time of *waves* of tiles, of each of 10 multiprocessors, with the constants of no fit."""
    m, n = edges
    part = (1 + 20 * (2 / 256)) / (1 + 20 * (1 / m + 1 / n))
    return 2 * m * n * (depth / split + 128) * waves * 10 * SECOND / (16 * 10**6 * part)


SPLIT = min(
    tiles_ps(64, 64, depth=8192, split=split, waves=waves) + 8 * 64 * 64 * split
    for split, waves in ((8, 1), (16, 2))
)
"""Of few tiles of a deep product, whose parts are summed through memory."""


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((300, 512), (512, 256), tiles_ps(64, 128, depth=512)),  # the largest of which each has one
        ((20, 64, 64), (20, 64, 64), tiles_ps(64, 64, depth=64, waves=2)),  # a batch shares the waves
        ((64, 8192), (8192, 64), SPLIT),
    ],
    ids=["waves of whole tiles", "batch", "split in depth"],
)
def test_a_product_takes_waves_of_whole_tiles(a, b, expected):
    [product] = launched(lambda: halves(*a) @ halves(*b), SLOW_ARITHMETIC)

    assert product.flops == 2 * math.prod(a) * b[-1]
    assert product.duration_ps == pytest.approx(expected, rel=1e-6)


def test_what_does_not_fill_a_tile_takes_as_long_as_what_does():
    def product(m):
        return launched(lambda: halves(m, 64) @ halves(64, 64), SLOW_ARITHMETIC)[-1].duration_ps

    assert product(577) == product(640) < product(641)  # 10 tiles on 10 multiprocessors


@given(shape=st.tuples(*[st.integers(1, 5000)] * 3), clocks=st.sampled_from(["burst", "steady", "training"]))
def test_a_product_takes_at_least_its_arithmetic_and_its_bytes_and_more_with_more_of_either(shape, clocks):
    constants = ProductConstants(9e14, 7e14, 6e14, 10**12, 3_000_000, 0.2, 5.0, 100.0, 0.5)
    m, n, k = shape
    nbytes = 2 * (m * k + k * n + m * n)

    took = product_ps(shape, 1, nbytes, constants, 100, clocks)

    least = max(2 * m * n * k / constants.rate(clocks), nbytes / 10**12) * SECOND
    assert took >= int(least) + 3_000_000 - 1
    assert product_ps((2 * m, n, k), 1, nbytes, constants, 100, clocks) >= took  # deeper ones may be split
    assert product_ps(shape, 2, nbytes, constants, 100, clocks) >= took
    assert product_ps(shape, 1, 2 * nbytes, constants, 100, clocks) >= took


@pytest.mark.parametrize(
    ("columns", "dtype", "times"),
    [(50264, "bfloat16", 1), (50257, "bfloat16", 5), (50258, "bfloat16", 2), (50260, "bfloat16", 2),
     (50257, "float32", 1)],
)  # fmt: skip
def test_rows_that_tensor_cores_cannot_load_whole_slow_products_unless_they_are_padded(columns, dtype, times):
    a = meta(64, 64, dtype=getattr(torch, dtype))
    b = meta(64, columns, dtype=getattr(torch, dtype))
    device = replace(SLOW_ARITHMETIC, memory_bandwidth=2**62)
    result = a @ b

    func, model = torch.ops.aten.mm.default, Launches(device)
    [plain] = model.of(func, (a, b), {}, result)
    [padded] = model.of(func, (a, b), {}, result, padded=True)
    [as_weight] = model.of(func, (a, meta(columns, 64, dtype=a.dtype).t()), {}, a.new_empty(columns, 64).t())

    assert plain.duration_ps == times * padded.duration_ps
    assert as_weight.duration_ps == padded.duration_ps


@pytest.mark.parametrize(("rows", "groups"), [(640, 10), (5, 10)])
def test_a_grouped_product_has_equal_groups_which_share_the_waves(rows, groups):
    a, b = halves(rows, 64), halves(groups, 64, 128)
    offsets = meta(groups, dtype=torch.int32)
    func = torch.ops.aten._grouped_mm.default
    experts = {"mine_bfloat16": ExpertConstants(0.5, floor_ps=7, each_ps=11)}
    device = replace(SLOW_ARITHMETIC, experts=experts, expert_kernels="mine", peak_memory_bandwidth=2**62)

    [product] = Launches(device).of(func, (a, b, offsets), {}, halves(rows, 128))

    tiles = min(rows, groups)  # of 64 x 128, or fewer rows; on 10 multiprocessors one wave
    height = 64 if rows > groups else 16
    assert product.flops == 2 * rows * 64 * 128
    assert product.duration_ps == pytest.approx(
        2 * height * 128 * 64 * 10 * SECOND / 10e12 + 5 * tiles, rel=1e-3
    )


@given(
    tokens=st.integers(1, 300),
    chosen=st.integers(1, 8),
    ranks=st.sampled_from([1, 2, 4, 8]),
    exponent=st.sampled_from([0.0, 0.6, 1.2]),
)
def test_rows_of_experts_are_all_there_are_and_those_routed_elsewhere_cost_as_the_file_says(
    tokens, chosen, ranks, exponent
):
    rows, everyone = (rows_of_experts(tokens, 32, chosen, own, exponent) for own in (ranks, 1))
    layer = ExpertLayer(tokens, 64, 128, rows, elsewhere=tokens * chosen - sum(rows))
    device = replace(GPU, peak_memory_bandwidth=SECOND)
    free, alike = (
        layer_ps(layer, ExpertConstants(0.5, elsewhere=part), device, "bfloat16") for part in (0, 1)
    )

    assert sum(everyone) == pytest.approx(tokens * chosen)
    assert len(rows) == 32 // ranks
    assert sum(everyone) / ranks - 1e-6 <= sum(rows) <= sum(everyone) + 1e-6
    assert alike - free == pytest.approx(layer.elsewhere * (6 * 64 + 6 * 128), abs=2)


def test_a_product_is_no_faster_than_its_operands_cross_the_memory():
    a, b = meta(64, 64), meta(64, 64)

    assert launched(lambda: a @ b)[0].duration_ps >= 3 * 64 * 64 * 4 + 1000


def allow_in_products(is_allowed):
    torch.set_float32_matmul_precision("high" if is_allowed else "highest")


def allow_in_convolutions(is_allowed):
    torch.backends.cudnn.allow_tf32 = is_allowed


@pytest.mark.parametrize(
    ("call", "allow", "usual"),
    [
        (lambda: meta(1024, 1024) @ meta(1024, 1024), allow_in_products, False),
        (lambda: torch.conv2d(meta(8, 16, 32, 32), meta(16, 16, 3, 3)), allow_in_convolutions, True),
    ],
    ids=["products", "convolutions"],
)
def test_float32_is_in_tfloat32_where_the_script_allows_it(call, allow, usual):
    def took_ps(**options):
        return launched(call, SLOW_ARITHMETIC, **options)[-1].duration_ps

    times = {usual: took_ps()}
    allow(not usual)
    try:
        times[not usual] = took_ps()
    finally:
        allow(usual)

    assert times[True] < times[False]
    assert took_ps(tf32=True) == times[True]


def test_a_convolution_is_the_product_of_its_points_its_outputs_and_its_filter():
    x, weight = halves(2, 16, 10, 10), halves(32, 16, 3, 3)
    a, b = halves(2 * 8 * 8, 16 * 9), halves(16 * 9, 32)

    [convolution] = launched(lambda: torch.conv2d(x, weight), SLOW_ARITHMETIC)
    [product] = launched(lambda: a @ b, SLOW_ARITHMETIC)

    assert convolution.flops == product.flops
    assert convolution.duration_ps == product.duration_ps


FORWARD = torch.ops.aten._scaled_dot_product_flash_attention
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_backward
FULL = 4 * 2 * 4 * 256 * 256 * 32 * SECOND / (10 * TERA)
"""Picoseconds of both products of the attention below at half the peak."""


def backward_of(q):
    sums, empty = meta(2, 4, 256), meta(0)
    return BACKWARD(q, q, q, q, q, sums, empty, empty, 256, 256, 0.0, False, empty, empty)


@pytest.mark.parametrize(
    ("call", "family", "expected"),
    [
        (FORWARD, "fast", FULL),
        (lambda q: FORWARD(q, q, q, 0.0, True), "fast", FULL * (256 + 128) / 2 / 256),
        (FORWARD, "slow", 2 * FULL),
        (FORWARD, "", FULL * 10 / 8),  # half the rate of products
        (backward_of, "fast", 2.5 * 2 * FULL),  # two and a half times the work, at half the rate
    ],
    ids=["forward", "causal", "slow", "no family", "backward"],
)
def test_fused_attention_goes_at_the_rate_of_its_family_and_counts_causal_work_once(call, family, expected):
    q = halves(2, 4, 256, 32)
    device = replace(GPU, launch_ps=0, memory_bandwidth=2**62, attention_kernels=family)
    if not family:
        device = replace(device, attention={})

    [attention] = launched(lambda: call(q, q, q) if call is FORWARD else call(q), device)

    assert attention.duration_ps == pytest.approx(expected, abs=3)


def test_rates_that_were_measured_stand_in_the_place_of_tiles():
    table = KernelTable("product", "bfloat16", "arithmetic", {"m": (8,), "n": (8,), "k": (8,)}, (10**9,), 7)
    device = replace(GPU, kernels={("product", "bfloat16"): table})
    a = halves(8, 8)
    said = []

    launches = launched(lambda: a @ a, device, say=lambda *what: said.append(what))
    launched(lambda: a + a, device, say=lambda *what: said.append(what))

    assert launches == [("mm", 2 * 8**3 * 1000 + 7, 2 * 8**3, 3 * 128, "bfloat16", "")]
    assert said == [("gpu: kernels that were not measured, and take what its peaks say", "add in bfloat16")]


def test_copies_are_refused_where_the_file_states_no_rate():
    with pytest.raises(NotSupportedError, match="laptop-cpu does not say how fast the host's memory"):
        Launches(load_device("laptop-cpu")).copy_ps(100)


def test_the_hosts_own_operations_take_its_time_and_bytes():
    x = torch.zeros(100)
    func = torch.ops.aten.add.Tensor

    assert Launches(GPU).host_ps(func, (x, x), {}, x) == 5000 + 1200 * SECOND // HOST_BANDWIDTH
    assert Launches(GPU).host_ps(torch.ops.aten.view.default, (x, [100]), {}, x) == 0


@pytest.mark.parametrize("name", ["a100", "a100-40gb", "h100", "h200", "b200", "v100"])
def test_a_layer_in_training_can_be_timed_on_every_gpu_that_ships(name):
    dtype = torch.float16 if name == "v100" else torch.bfloat16
    layer = torch.nn.TransformerEncoderLayer(256, 4, dtype=dtype, device="meta")
    x = meta(128, 2, 256, dtype=dtype)

    launches = launched(lambda: layer(x).sum().backward(), load_device(name))

    assert len(launches) > 30
    assert all(launch.duration_ps > 0 for launch in launches)
