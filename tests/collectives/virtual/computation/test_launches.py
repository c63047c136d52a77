"""Launches of CUDA for torch's operations, and the time of each kernel, by hand."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.errors import NotSupportedError
from collectives.virtual.computation.launches import HOST_BANDWIDTH, Launches
from sim import Device, load_device
from sim.hardware import AttentionRates, KernelTable
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


def test_an_operation_that_memory_bounds_takes_its_bytes_and_a_launch():
    x = meta(100)

    assert launched(lambda: x + x) == [("add", 1200 + 1000, 0, 1200, "")]
    assert launched(lambda: x.to(torch.bfloat16)) == [("_to_copy", 600 + 1000, 0, 600, "")]


def test_views_and_allocations_launch_nothing():
    x = meta(4, 4)

    assert launched(lambda: (x.t(), x.view(16), x[1:], torch.empty_like(x))) == []


def test_a_product_takes_waves_of_whole_tiles():
    # 300 x 256: tiles of 256 x 128 make 4 of one wave, and nothing smaller is faster; depth 512 + 128
    a, b = meta(300, 512, dtype=torch.bfloat16), meta(512, 256, dtype=torch.bfloat16)
    rate = 16 * 10**6
    candidates = {
        (256, 128): 2 * 256 * 128 / 1.0,
        (128, 128): 2 * 128 * 128 / 0.92,
        (128, 64): 2 * 128 * 64 * 2 / 0.75,  # 12 tiles: two waves
        (64, 64): 2 * 64 * 64 * 2 / 0.55,  # 20 tiles: two waves
    }
    expected = min(candidates.values()) * (512 + 128) * 10 * SECOND / rate

    [product] = launched(lambda: a @ b, SLOW_ARITHMETIC)

    assert product.flops == 2 * 300 * 512 * 256
    assert product.duration_ps == pytest.approx(expected, abs=1)


def test_what_does_not_fill_a_tile_takes_as_long_as_what_does():
    def product(m):
        return launched(
            lambda: meta(m, 64, dtype=torch.bfloat16) @ meta(64, 64, dtype=torch.bfloat16), SLOW_ARITHMETIC
        )[-1].duration_ps

    assert product(577) == product(640) < product(641)  # 10 tiles on 10 multiprocessors


def test_a_deep_product_of_few_tiles_is_split_and_its_parts_are_summed_through_memory():
    a, b = meta(64, 8192, dtype=torch.bfloat16), meta(8192, 64, dtype=torch.bfloat16)
    split = 8  # depth of 1024 each, 8 of 10 multiprocessors
    tiles = 2 * 64 * 64 * (8192 + split * 128) * 10 * 100 * SECOND // (split * 16 * 10**6 * 55)

    [product] = launched(lambda: a @ b, SLOW_ARITHMETIC)

    assert product.duration_ps == pytest.approx(tiles + 8 * 64 * 64 * split, abs=2)


def test_a_batch_of_products_shares_the_waves():
    a, b = (meta(20, 64, 64, dtype=torch.bfloat16) for _ in range(2))
    wave = 2 * 64 * 64 * (64 + 128) * 10 * 100 * SECOND / (16 * 10**6 * 55)

    [product] = launched(lambda: torch.bmm(a, b), SLOW_ARITHMETIC)

    assert product.duration_ps == pytest.approx(2 * wave, abs=1)


def test_a_product_is_no_faster_than_its_operands_cross_the_memory():
    a, b = meta(64, 64), meta(64, 64)

    assert launched(lambda: a @ b)[0].duration_ps >= 3 * 64 * 64 * 4 + 1000


def test_products_of_float32_are_in_tfloat32_where_the_script_allows_it():
    a = meta(1024, 1024)

    def product():
        return launched(lambda: a @ a, SLOW_ARITHMETIC)[0].duration_ps

    plain = product()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        fast = product()
    finally:
        torch.set_float32_matmul_precision(before)

    assert fast < plain == product()
    assert launched(lambda: a @ a, SLOW_ARITHMETIC, tf32=True)[0].duration_ps == fast


def test_convolutions_of_float32_are_in_tfloat32_unless_the_script_forbids_it():
    x, weight = meta(8, 16, 32, 32), meta(16, 16, 3, 3)

    def convolve():
        return launched(lambda: torch.conv2d(x, weight), SLOW_ARITHMETIC)[0].duration_ps

    allowed = convolve()
    torch.backends.cudnn.allow_tf32 = False
    try:
        forbidden = convolve()
    finally:
        torch.backends.cudnn.allow_tf32 = True

    assert allowed < forbidden


def test_a_convolution_is_the_product_of_its_points_its_outputs_and_its_filter():
    x, weight = meta(2, 16, 10, 10, dtype=torch.bfloat16), meta(32, 16, 3, 3, dtype=torch.bfloat16)
    a, b = meta(2 * 8 * 8, 16 * 9, dtype=torch.bfloat16), meta(16 * 9, 32, dtype=torch.bfloat16)

    [convolution] = launched(lambda: torch.conv2d(x, weight), SLOW_ARITHMETIC)
    [product] = launched(lambda: a @ b, SLOW_ARITHMETIC)

    assert convolution.flops == product.flops
    assert convolution.duration_ps == product.duration_ps


def test_fused_attention_goes_at_the_rate_of_its_family_and_counts_causal_work_once():
    q = meta(2, 4, 256, 32, dtype=torch.bfloat16)

    def attention(causal, family="fast"):
        device = replace(GPU, launch_ps=0, memory_bandwidth=2**62, attention_kernels=family)
        return launched(
            lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q, 0.0, causal), device
        )[0].duration_ps

    full = 4 * 2 * 4 * 256 * 256 * 32 * SECOND // (10 * TERA)
    assert attention(False) == pytest.approx(full, abs=2)
    assert attention(True) == pytest.approx(full * (256 + 128) / 2 / 256, abs=2)
    assert attention(False, "slow") == pytest.approx(2 * full, abs=2)


def test_the_backward_pass_of_attention_does_two_and_a_half_times_the_work():
    q = meta(2, 4, 256, 32, dtype=torch.bfloat16)
    device = replace(GPU, launch_ps=0, memory_bandwidth=2**62)
    aten = torch.ops.aten
    sums = meta(2, 4, 256)
    empty = meta(0)

    [forward] = launched(lambda: aten._scaled_dot_product_flash_attention(q, q, q), device)
    [backward] = launched(
        lambda: aten._scaled_dot_product_flash_attention_backward(
            q, q, q, q, q, sums, empty, empty, 256, 256, 0.0, False, empty, empty
        ),
        device,
    )

    assert backward.duration_ps == pytest.approx(2.5 * 2 * forward.duration_ps, abs=3)


def test_a_gpu_without_a_family_of_attention_kernels_takes_half_the_rate_of_products():
    q = meta(1, 1, 128, 64, dtype=torch.bfloat16)
    device = replace(GPU, launch_ps=0, memory_bandwidth=2**62, attention={}, attention_kernels="")

    [attention] = launched(lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q), device)

    assert attention.duration_ps == pytest.approx(4 * 128 * 128 * 64 * SECOND / (8 * TERA), abs=2)


def test_foreach_operations_launch_one_kernel_for_as_many_tensors_as_fit():
    few = [meta(1000) for _ in range(300)]
    many = [meta(1000) for _ in range(771)]

    assert launched(lambda: torch._foreach_mul_(few, 2.0)) == [
        ("_foreach_mul_", 300 * 8000 + 1000, 0, 300 * 8000, "")
    ]
    assert [launch.nbytes for launch in launched(lambda: torch._foreach_mul_(many, 2.0))] == [
        770 * 8000,
        8000,
    ]


def test_a_fused_optimizer_reads_gradients_once():
    p, g, m, v = ([meta(100)] for _ in range(4))
    steps = [meta(())]

    [kernel] = launched(
        lambda: torch._fused_adamw_(
            p, g, m, v, [], steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8,
            amsgrad=False, maximize=False,
        )
    )  # fmt: skip

    assert kernel.nbytes == 7 * 400 + 4


def test_rates_that_were_measured_stand_in_the_place_of_tiles():
    table = KernelTable("product", "bfloat16", "arithmetic", {"m": (8,), "n": (8,), "k": (8,)}, (10**9,), 7)
    device = replace(GPU, kernels={("product", "bfloat16"): table})
    a = meta(8, 8, dtype=torch.bfloat16)
    said = []

    launches = launched(lambda: a @ a, device, say=lambda *what: said.append(what))
    launched(lambda: a + a, device, say=lambda *what: said.append(what))

    assert launches == [("mm", 2 * 8**3 * 1000 + 7, 2 * 8**3, 3 * 128, "bfloat16")]
    assert said == [("gpu: kernels that were not measured, and take what its peaks say", "add in bfloat16")]


def test_a_type_that_the_device_does_not_compute_in_is_refused_by_name():
    a = meta(8, 8, dtype=torch.float64)

    with pytest.raises(NotSupportedError, match=r"gpu has no rate for float64, in which aten\.mm"):
        launched(lambda: a @ a)


def test_copies_go_at_the_rate_that_the_file_states_and_are_refused_where_it_states_none():
    assert Launches(GPU).copy_ps(100) == 200 + 1000

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
