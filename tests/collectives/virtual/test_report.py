"""A virtual run repeats, and its report says where each rank's time has gone, iteration by iteration."""

import json

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from collectives import UnknownAlgorithmError, simulate
from collectives.virtual import Roofline, end_iteration, run, run_virtual
from collectives.virtual.computation.totals import Totals
from sim import NetworkFileError, Straggler, TopologyError, Trace, load_device, load_network
from sim.files.late_ranks import slowest_on
from sim.units import SECOND
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch

MICROSECOND = 10**6  # picoseconds


def all_reduce_ps(num_ranks: int, nbytes: int) -> int:
    """Return how long a ring takes on `switch`: 80 ps for each byte and 2 µs of latency either side."""
    return 2 * (num_ranks - 1) * (2 * 2 * MICROSECOND + nbytes // num_ranks * 80)


@given(charges=st.lists(st.lists(st.integers(0, 10**7), min_size=4, max_size=4), max_size=4))
@settings(max_examples=20)
def test_each_iteration_is_what_was_computed_and_what_was_waited(charges):
    def train(rank):
        dist.init_process_group("nccl")
        parameter = torch.nn.Parameter(torch.zeros(100))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for of_ranks in charges:
            rank_thread().charge_ps(of_ranks[rank])
            parameter.grad = torch.ones(100)
            dist.all_reduce(parameter.grad)
            optimizer.step()

    report = run(train, 4, switch(4)).report

    assert len(report.iterations) == len(charges)
    for iteration, of_ranks in zip(report.iterations, charges, strict=True):
        time_ps = max(of_ranks) + all_reduce_ps(4, 400)  # the slowest keeps all waiting
        for spent, charged in zip(iteration, of_ranks, strict=True):
            assert spent.seconds == pytest.approx(time_ps / SECOND, rel=1e-12)
            assert spent.compute_seconds == charged / SECOND
            assert spent.exposed_seconds == pytest.approx((time_ps - charged) / SECOND, rel=1e-12)
    assert report.iteration_seconds == tuple(iteration[0].seconds for iteration in report.iterations)
    assert json.loads(json.dumps(report.to_json()))["num_ranks"] == 4


def test_the_steady_iteration_is_the_median_of_all_but_the_first():
    def work(rank):
        for charge in (900, 5, 7, 3, 6):
            rank_thread().charge_ps(charge)
            end_iteration()

    report = run(work, 1).report
    steady = report.steady()

    assert report.iterations[0][0].compute_seconds == 900 / SECOND
    assert steady.seconds == 5 / SECOND  # the shorter of the two in the middle, of 3, 5, 6 and 7


def on_gpu(rank: int) -> None:
    for _ in range(2):
        torch.ones(10**7, device="cuda").mul_(2)
        end_iteration()


@pytest.mark.parametrize("num_ranks", [8, 16])
def test_kernels_take_as_long_as_on_the_slowest_of_all_ranks_of_a_network_unless_told_otherwise(num_ranks):
    slowest = float(slowest_on(load_device("h100"), num_ranks))

    def of(**options):
        return run(on_gpu, num_ranks, compute=Roofline("h100"), fake=True, **options).report

    network = load_network("dgx-h100").topology(num_ranks)
    late = of(network="dgx-h100")
    others = (
        of(network=network),
        of(network="dgx-h100", inefficiencies=()),
        of(network="dgx-h100", inefficiencies=("all", "-late")),
    )

    (in_time,) = {report.steady().compute_seconds for report in others}
    lost = {own.cause: own.seconds for own in late.lost_to}
    assert late.slowest == slowest
    assert of(network="dgx-h100", late_among=256).slowest == float(slowest_on(load_device("h100"), 256))
    assert late.steady().compute_seconds == pytest.approx(in_time * slowest, rel=1e-6)
    assert lost["slowest rank"] == pytest.approx(in_time * (slowest - 1), rel=1e-6)


def step(times: int = 1) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    for _ in range(times):
        optimizer.step()


def marked_by_the_script(rank: int) -> None:
    for _ in range(2):
        step(3)
        end_iteration()


def optimizer_that_is_made_later(rank: int) -> None:
    step(3)
    step(4)


@pytest.mark.parametrize(
    ("work", "iterations"),
    [(marked_by_the_script, 2), (optimizer_that_is_made_later, 3 + 4 - 1), (lambda rank: step(), 1)],
)
def test_iterations_end_with_steps_of_optimizers_unless_the_script_marks_them(work, iterations):
    end_iteration()  # outside of a run it means nothing

    assert len(run(work, 2).report.iterations) == iterations
    step()


def test_what_no_iteration_is_has_no_iterations():
    report = run(lambda rank: None, 2).report

    assert (report.iterations, report.steady(), report.seconds) == ((), None, 0.0)


def reduce_once(rank: int) -> None:
    dist.init_process_group("nccl")
    dist.all_reduce(torch.ones(100))


def test_the_report_says_what_it_rests_on():
    slow = Straggler(1, delay="1ms")

    report = run(reduce_once, 4, "switch-100g", algorithm={"all_reduce": "tree"}, conditions=[slow]).report

    assert report.algorithm == "all_reduce by tree"
    assert report.network == "switch-100g"
    assert report.compute == "none but what the script charges"
    assert report.repeats
    assert len(report.conditions) == 1
    assert "Straggler" in report.conditions[0]
    assert report.ranks[1].seconds < report.ranks[0].seconds  # it began later
    assert sum(report.links.nbytes) == 2 * 400 * 3 * 2  # up and down: to the root and back, three ranks


@pytest.mark.parametrize(("network", "asked"), [("dgx-h100", "nccl"), ("ethernet-25g", "auto")])
def test_a_network_by_its_name_brings_what_a_real_run_uses_and_a_topology_its_links(network, asked):
    topology = load_network(network).topology(4)
    named, bare = (run(reduce_once, 4, one) for one in (network, topology))

    assert max(named.times_ps) == simulate(asked, nbytes=400, network=network, num_ranks=4).time_ps
    assert max(bare.times_ps) == simulate("ring", nbytes=400, topology=topology, itemsize=4).time_ps


def test_a_network_is_a_name_or_a_topology_and_must_have_so_many_ranks():
    with pytest.raises(NetworkFileError, match="switch-100g"):
        run(lambda rank: None, 2, "switch-100gg")
    with pytest.raises(TopologyError, match="say how many"):
        run(lambda rank: None)
    with pytest.raises(TopologyError, match="2 ranks, but 3"):
        run(lambda rank: None, 3, switch(2))
    assert run(lambda rank: rank, network=switch(2)).results == [0, 1]


def test_conditions_given_under_their_older_names_are_the_same_conditions():
    slow = Straggler(1, delay="1ms")
    now = run(reduce_once, 3, conditions=[slow])

    assert run(reduce_once, 3, faults=[slow]).times_ps == now.times_ps
    assert run_virtual(reduce_once, now.cluster.topology, conditions=[slow]).times_ps == now.times_ps


def test_an_unknown_algorithm_is_refused_before_anything_runs():
    with pytest.raises(UnknownAlgorithmError, match="ring"):
        run(reduce_once, 2, algorithm="rign")


def test_a_trace_holds_what_was_charged_and_every_collective():
    trace = Trace()

    def work(rank):
        dist.init_process_group()
        rank_thread().charge("forward")
        dist.all_reduce(torch.ones(8))

    outcome = run(work, network=switch(2), compute={"forward": 1000}, trace=trace)

    assert [(span.rank, span.track, span.start_ps, span.end_ps) for span in trace.spans] == [
        (0, "compute", 0, 1000), (1, "compute", 0, 1000), (0, "communication", 1000, outcome.times_ps[0]),
        (1, "communication", 1000, outcome.times_ps[1]),
    ]  # fmt: skip


WIDTH, BATCH, LAYERS, STEPS = 64, 32, 3, 4
PRODUCT = 2 * BATCH * WIDTH * WIDTH
GPU = load_device("h100")


def train_perceptron(rank: int, evaluations: int = 0) -> None:
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(BATCH, WIDTH)
    for _ in range(STEPS):
        model(batch).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for _ in range(evaluations):
                model(batch)


@pytest.mark.parametrize("evaluations", [0, 2])
def test_model_flops_are_three_times_those_of_the_forward_pass(evaluations):
    report = run(lambda rank: train_perceptron(rank, evaluations), 2, compute=Roofline(GPU)).report

    utilization, steady = report.utilization, report.steady()
    assert utilization.model_flops == 3 * LAYERS * PRODUCT
    assert utilization.flops == (3 * LAYERS - 1 + LAYERS * evaluations) * PRODUCT  # the batch has no gradient
    assert utilization.dtype == "float32"
    ideal = utilization.model_flops / GPU.peaks["float32"]
    assert utilization.mfu == pytest.approx(ideal / steady.seconds)
    assert utilization.hfu == pytest.approx(utilization.mfu * utilization.flops / utilization.model_flops)


class Product(torch.autograd.Function):
    """A product, as libraries write it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad


@pytest.mark.parametrize("is_recomputed", [False, True])
def test_a_function_of_autograd_is_part_of_the_pass_that_calls_it(is_recomputed):
    def call(*inputs: torch.Tensor) -> torch.Tensor:
        return (
            checkpoint(Product.apply, *inputs, use_reentrant=True)
            if is_recomputed
            else Product.apply(*inputs)
        )

    def work(rank: int) -> None:
        weight = torch.ones(WIDTH, WIDTH, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(STEPS):
            call(torch.ones(BATCH, WIDTH, requires_grad=True), weight).sum().backward()
            optimizer.step()

    utilization = run(work, 2, compute=Roofline(GPU)).report.utilization

    assert utilization.model_flops == 3 * PRODUCT
    assert utilization.flops == (3 + is_recomputed) * PRODUCT


def test_without_a_gpu_nothing_is_said_of_its_utilization():
    report = run(train_perceptron, 2, compute=Roofline("laptop-cpu")).report

    assert report.utilization is None
    assert "utilization" not in report.to_json()


def test_iterations_begin_again_where_a_script_says_where_they_end():
    totals = Totals()

    for finished in (1, 2, 1):
        totals.add(10, 0, "float32", "forward")
        totals.end_iteration(finished)

    assert [sum(flops.values()) for flops in totals.iterations] == [10]
