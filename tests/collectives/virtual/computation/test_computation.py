"""Computation in virtual time: explicit charges, profiles, measured time and kernels; exact overlap."""

import time
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as stock
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import ddp
from collectives import NotSupportedError
from collectives.virtual import Charges, ComputeModel, Measured, Recorded, Roofline, compute, run
from collectives.virtual.computation import ddp_shapes, parse_compute
from collectives.virtual.computation.kernels import kernel_of
from collectives.virtual.computation.operations import Operation
from sim import Device, DeviceFileError, RankError, Straggler, Trace
from sim.hardware import KernelTable
from sim.units import SECOND, parse_bandwidth, transfer_ps
from tests.collectives.virtual.clusters import in_group, rank_thread
from tests.given import switch


def test_a_script_can_say_itself_how_long_it_computes():
    trace = Trace()

    def work(rank):
        compute("1.5us")
        compute(1e-6, "loss")
        return rank_thread().computed_ps

    outcome = run(work, network=switch(2), trace=trace, conditions=[Straggler(1, factor=3)])

    assert outcome.times_ps == tuple(outcome.results) == (2_500_000, 7_500_000)
    assert [(span.name, span.start_ps, span.end_ps) for span in trace.spans if span.rank == 1] == [
        ("compute", 0, 4_500_000),
        ("loss", 4_500_000, 7_500_000),
    ]


def test_a_time_that_cannot_be_read_is_refused_with_an_example():
    compute("1s")  # outside of a run it means nothing

    with pytest.raises(RankError, match='expected a time such as "2us"'):
        run(lambda rank: compute("soon"), network=switch(1))


PROFILE = {"forward": 5000, "gradient:1.weight": 300, "gradient:0.weight": 20, "backward": 1}
OTHER = Recorded({"gradient:0.weight": 1, "gradient:1.weight": 1, "gradient:1.bias": 1}, "other")
WRAPPERS = {
    "plain": lambda model: model, "ours": ddp.DistributedDataParallel, "torch": DistributedDataParallel,
    "sharded": lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (2,))),
}  # fmt: skip


def train_two_layers(kind, model_of_time):
    """Train a model of two layers; return when each rank's steps began, and what it computed."""

    def work(rank):
        torch.manual_seed(0)
        model = WRAPPERS[kind](nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)))
        began = []
        for _ in range(4):
            began.append(rank_thread().now_ps())
            model(torch.ones(2, 8)).sum().backward()
        return began, rank_thread().computed_ps

    return in_group(work, 2, compute=model_of_time).results


@pytest.mark.parametrize("kind", ["plain", "torch", "ours"])
def test_a_profile_charges_the_forward_pass_and_each_gradient_whoever_reduces_them(kind):
    results = train_two_layers(kind, Recorded(PROFILE))

    assert [computed for _, computed in results] == [4 * sum(PROFILE.values())] * 2
    if kind == "ours":
        assert results == train_two_layers(kind, Charges(PROFILE))


@pytest.mark.parametrize(
    ("kind", "model", "said"),
    [
        ("plain", OTHER, r"profile other .* called no module .* differs in 1.bias"),
        ("sharded", Recorded(PROFILE), r".weight is sharded; use a roofline"),
    ],
)
def test_a_profile_of_another_model_or_of_a_sharded_one_is_refused(kind, model, said):
    with pytest.raises(RankError, match=said):
        train_two_layers(kind, model)


def test_measured_computation_takes_the_time_of_the_thread_and_none_of_it_twice():
    def work(rank):
        began_ns, began_ps = time.thread_time_ns(), rank_thread().now_ps()
        while time.thread_time_ns() - began_ns < 20e6:
            pass
        dist.barrier()
        own = rank_thread()
        return own.now_ps() - began_ps, own.computed_ps, own.waited_ps

    outcome = in_group(work, 2, compute=Measured(10))

    for (passed, computed, waited), end in zip(outcome.results, outcome.times_ps, strict=True):
        assert passed >= 200 * 10**9  # 20 ms, ten times
        assert computed + waited <= end
    assert not Measured().repeats


def test_models_have_names_that_the_command_line_knows(tmp_path):
    (tmp_path / "mine.toml").write_text('schema = 1\nmemory_bandwidth = "1GB/s"\n')
    known = {
        "h100": "roofline of h100", "a100:tf32": "roofline of a100 with tf32",
        "h100:fa1_2023": "roofline of h100 with fa1_2023",
        "a100-40gb:fa2:tf32": "roofline of a100-40gb with fa2 with tf32",
        str(tmp_path / "mine.toml"): "roofline of mine", "measured": "measured CPU time × 1",
        "measured:0.5": "measured CPU time × 0.5", "profile:gpt": "profile gpt",
    }  # fmt: skip

    assert {text: parse_compute(text, lambda name: PROFILE).name for text in known} == known
    assert parse_compute("none") is None
    assert all(isinstance(parse_compute(text, lambda name: PROFILE), ComputeModel) for text in known)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "h10",
            r"unknown device 'h10' \(did you mean 'h100'\?\).*; or else measured, measured:FACTOR, profile:",
        ),
        ("measured:fast", "expected a factor such as 0.1, got 'fast'"),
        ("measured:-1", "above 0, such as 0.1, got -1"),
        ("profile:gpt2-xl", "no profiles can be read here"),
        ("v100:tf32", "v100 has no tfloat32"),
        ("h100:900W", "h100:900W: expected at most the 700 W of h100, got 900"),
        ("laptop-cpu:9W", "laptop-cpu does not state of which power its constants are"),
        ("h100:fa9", "h100:fa9: expected one of tf32, 500W, fa1_2023, fa2, .* behind h100"),
        ("{folder}/gpu.toml", r"not a TOML file: [^;]*$"),  # other models are no help here
    ],
)
def test_what_is_no_model_is_refused_with_what_is(text, said, tmp_path):
    (tmp_path / "gpu.toml").write_text("schema = [")

    with pytest.raises((DeviceFileError, NotSupportedError), match=said):
        parse_compute(text.format(folder=tmp_path))


LAYERS, NBYTES, ALPHA_PS = 6, 1 << 20, 5_000_000


class Layer(nn.Module):
    """Adds its parameter of 1 MiB: 50 us forward and 100 us backward."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(NBYTES // 4))
        self.weight.register_hook(lambda grad: compute("100us"))

    def forward(self, x):
        compute("50us")
        return x + self.weight.sum()


@pytest.mark.parametrize(
    ("bandwidth", "us"),
    [("1GB/s", 10017.18), ("5GB/s", 2467.44), ("10GB/s", 1523.72), ("40GB/s", 969.32), ("200GB/s", 937.86)],
)
def test_a_steady_step_of_torchs_data_parallel_is_the_closed_formula_of_overlap(bandwidth, us):
    num_ranks = 4

    def work(rank):
        model = DistributedDataParallel(nn.Sequential(*(Layer() for _ in range(LAYERS))), bucket_cap_mb=1)
        began = []
        for _ in range(4):
            began.append(rank_thread().now_ps())
            model(torch.zeros(1)).sum().backward()
        return [*began, rank_thread().now_ps()]

    outcome = in_group(work, num_ranks, network=switch(num_ranks, bandwidth, "2500ns"))

    forward_ps, backward_ps = LAYERS * 50_000_000, 100_000_000
    message_ps = ALPHA_PS + transfer_ps(NBYTES // num_ranks, parse_bandwidth(bandwidth))
    ends_ps = forward_ps
    for ready in range(1, LAYERS + 1):  # a bucket is reduced when it is ready and the one before is done
        ends_ps = max(ends_ps, forward_ps + ready * backward_ps) + 2 * (num_ranks - 1) * message_ps  # a ring
    assert [after - before for before, after in pairwise(outcome.results[0])][2:] == [ends_ps, ends_ps]
    assert len({tuple(result) for result in outcome.results}) == 1
    assert round(ends_ps / 10**6, 2) == us


C_PLUS_PLUS = stock._verify_param_shape_across_processes


@pytest.mark.parametrize(
    ("model", "device"),
    [
        (lambda rank: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), "h100"),
        (lambda rank: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), "laptop-cpu"),
        (lambda rank: nn.Linear(4, 4, bias=rank == 0), "h100"),
        (lambda rank: nn.Linear(4, 4 + rank // 2), "h100"),
    ],
    ids=["same", "same on a CPU", "other number", "other size"],
)
def test_the_comparison_takes_the_time_and_says_the_words_of_that_in_c_plus_plus(model, device, monkeypatch):
    def outcome():
        """Return the times of a run in which each rank trains its model, or what is said instead."""

        def work(rank):
            DistributedDataParallel(model(rank))(torch.ones(2, 4)).sum().backward()

        try:
            return in_group(work, 3, "nccl", compute=Roofline(device)).times_ps
        except RankError as error:
            return type(error.__cause__), str(error).partition("\n")[0]

    ours = outcome()
    monkeypatch.setattr(ddp_shapes, "_verify", C_PLUS_PLUS)

    assert ours == outcome()
    assert (ours[0] is RuntimeError) is not isinstance(model(0), nn.Sequential)


aten = torch.ops.aten


def kernel(func, *args, **named):
    result = func(*args, **named)
    return kernel_of(func, args, named, result, Operation.of(func).nbytes(args, named, result))


def ones(*shape):
    return torch.ones(shape)


def convolution(x, weight, stride=1, groups=1, transposed=False):
    return aten.convolution.default, x, weight, None, [stride] * 2, [1, 1], [1, 1], transposed, [0, 0], groups


def attention(causal):
    q, k = ones(1, 2, 6, 8), ones(1, 2, 10, 8)
    return aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, k, 0.0, causal


@pytest.mark.parametrize(
    ("call", "kind", "shape"),
    [
        ((aten.mm.default, ones(2, 3), ones(3, 5)), "product", {"m": 2, "n": 5, "k": 3}),
        ((aten.addmm.default, ones(5), ones(2, 3), ones(3, 5)), "product", {"m": 2, "n": 5, "k": 3}),
        ((aten.bmm.default, ones(7, 2, 3), ones(7, 3, 5)), "batched_product", {"m": 2, "n": 5, "k": 3}),
        (convolution(ones(2, 3, 8, 8), ones(5, 3, 3, 3)),
         "convolution", {"samples": 2, "edge": 8, "depth": 27, "outputs": 5}),
        (convolution(ones(2, 3, 8, 8), ones(5, 3, 1, 1), stride=2),
         "strided_pointwise_convolution", {"samples": 2, "edge": 5, "depth": 3, "outputs": 5}),
        (convolution(ones(2, 4, 8, 8), ones(4, 1, 3, 3), groups=4),
         "depthwise_convolution", {"samples": 2, "edge": 8, "channels": 4}),
        (convolution(ones(2, 4, 8, 8), ones(4, 4, 3, 3), transposed=True),
         "transposed_convolution", {"samples": 2, "edge": 8}),
        ((aten.add.Tensor, ones(10), ones(10)), "add", {"bytes": 120}),
        ((aten.sum.dim_IntList, ones(4, 5), [0]), "column_sum", {"bytes": 100}),
        ((aten.sum.dim_IntList, ones(4, 5), [1]), "sum", {"bytes": 96}),
        ((aten.clone.default, ones(4, 5)), "clone", {"bytes": 160}),
        ((aten.copy_.default, ones(5, 4), ones(4, 5).t()), "transposed_copy", {"bytes": 160}),
        ((aten.copy_.default, ones(5, 4), ones(5, 8)[:, :4]), "strided_copy", {"bytes": 160}),
        ((aten.max_pool2d_with_indices.default, ones(2, 3, 8, 8), [2, 2]),
         "max_pool2d_with_indices", {"edge": 8, "bytes": 1536}),
        (attention(causal=False), "attention", {"keys": 10, "head": 8}),
        (attention(causal=True), "causal_attention", {"keys": 10, "head": 8}),
    ],
)  # fmt: skip
def test_an_operation_stands_under_its_kind_with_its_shape(call, kind, shape):
    found = kernel(*call)

    assert found.operations[0] == kind
    assert found.shape == shape


def test_what_works_element_by_element_may_stand_as_an_addition():
    assert list(kernel(aten.mul_.Tensor, ones(3), 2.0).operations) == ["mul_", "mul", "add_"]
    assert list(kernel(aten.mul.Tensor, ones(3), 2.0).operations) == ["mul", "mul_", "add"]
    assert "add" not in kernel(aten.cat.default, [ones(3), ones(3)]).operations


def device(*tables):
    return Device(
        "mine", {"float32": SECOND}, SECOND, kernels={(own.operation, own.dtype): own for own in tables}
    )


PRODUCT = KernelTable(
    "product", "float32", "arithmetic", {"m": (1, 4), "n": (1, 4), "k": (1, 4)}, (SECOND // 10,) * 8, 7
)
ADD = KernelTable("add", "float32", "bytes", {"bytes": (12, 1200)}, (SECOND // 2,) * 2, 5)


def charged(work, on):
    outcome = run(lambda rank: work(), network=switch(1), compute=Roofline(on))
    return outcome.times_ps[0], outcome.report.notices


def test_a_measured_kind_takes_what_its_table_says_and_others_what_the_peaks_say():
    x = torch.full((4, 4), 0.5)

    assert charged(lambda: torch.mm(x, x), device(PRODUCT)) == (10 * 2 * 4**3 + 7, ())
    assert charged(lambda: torch.add(x, x), device(ADD)) == (2 * 3 * 64 + 5, ())
    assert charged(lambda: torch.mul(x, x), device(ADD)) == (2 * 3 * 64 + 5, ())
    assert charged(lambda: torch.mm(x, x), device()) == (3 * 64, ())


def test_what_has_no_table_or_lies_outside_of_the_measured_shapes_is_told():
    x = torch.full((4, 8), 0.5)

    taken, notices = charged(lambda: (torch.mm(x, x.t()), functional.softmax(x, -1)), device(PRODUCT))

    assert taken == 10 * 2 * 4 * 4 * 8 + 7 + 2 * 128
    assert notices == (
        "mine: kernels that lie outside of the measured shapes, and go at the rate of the nearest: product",
        "mine: kernels that were not measured, and take what its peaks say: _softmax in float32",
    )


def test_a_table_of_shapes_that_kernels_do_not_have_is_refused():
    odd = KernelTable("product", "float32", "arithmetic", {"m": (1,), "tiles": (1,)}, (1,))

    with pytest.raises(NotSupportedError, match="mine has kernels of product by m, tiles; expected m, n, k"):
        Roofline(device(odd))
