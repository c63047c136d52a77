"""Schedules of torch's own systems and copies on virtual CUDA devices, beside those counted by hand."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from collectives.virtual import Roofline, run
from collectives.virtual.streams.gpu import current_gpu
from sim import Device, load_network
from sim.files.device_file import load_device
from sim.units import SECOND
from tests.collectives.virtual.clusters import on_gpus

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

RANKS = 4
LAYERS = 4
WIDTH = 64
BATCH = 512
ITERATIONS = 4
WEIGHT = WIDTH * WIDTH * 4
ACTIVATION = BATCH * WIDTH * 4
FLOPS = 2 * BATCH * WIDTH * WIDTH
NETWORK = load_network("switch-100g").topology(RANKS)
SMALL = 1
"""Picoseconds of a kernel that is no product."""


def device_on_which_products_take(duration_ps: int) -> Device:
    rates = {"float32": FLOPS * SECOND // duration_ps}
    return Device("products", rates, memory_bandwidth=2**62, copy_bandwidth=2**62, kind="gpu")


def steady_ps(script, product_ps: int) -> int:
    """Return how long the last iteration of *script* takes on rank 0, and check that the last two do."""
    compute = Roofline(device_on_which_products_take(product_ps))
    iterations = run(script, RANKS, NETWORK, compute=compute, fake=True).report.iterations
    (before,), (last,) = ({round(step.seconds * SECOND) for step in steps[:1]} for steps in iterations[-2:])
    assert before == last
    return last


def message_ps(nbytes: int) -> int:
    return 2 * 2_000_000 + nbytes * 80  # up to the switch and down, at 100 Gb/s


def sharded_by_hand(prefetches: bool, reshards: bool, product: int) -> int:
    """Return how long an iteration of FSDP2 takes, whose collectives share one communicator."""
    gather = scatter = (RANKS - 1) * message_ps(WEIGHT // RANKS)  # a ring's
    compute = copies = SMALL  # the batch; then two streams: computation, and copies into what is gathered
    network = gathered = 0
    copied_out = []

    def gather_next():
        nonlocal copies, network, gathered
        copies += SMALL
        gathered = network = max(network, copies) + gather

    # Forward: two layers are held in gathered form, the one that computes and the one that comes next.
    for _ in range(LAYERS):
        copies = max([copies, *copied_out[:-1]])
        gather_next()
        compute = max(compute, gathered) + SMALL
        copied_out.append(compute)
        compute += product
    compute += 2 * SMALL  # the sum, and its gradient

    # Backward: the layer that comes next is gathered beside this one, or after its gradients have been sent.
    copies = copied_out[-1]
    if reshards:
        gather_next()
    scattered = 0
    for layer in reversed(range(LAYERS)):
        if reshards:
            compute = copies = max(compute, gathered) + SMALL
        if reshards and prefetches and layer > 0:
            gather_next()
        compute += (2 if layer > 0 else 1) * product  # the batch needs no gradient
        compute = max(compute, scattered) + SMALL  # into the memory that the scatter before has read
        scattered = network = max(network, compute) + scatter
        if reshards and not prefetches and layer > 0:
            gather_next()
    return max(compute, scattered) + SMALL  # the optimizer


@pytest.mark.parametrize("product_ps", [50_000_000, 4_000_000], ids=["hides gathers", "waits for gathers"])
@pytest.mark.parametrize("reshards", [True, False], ids=["reshards", "keeps"])
@pytest.mark.parametrize("prefetches", [True, False], ids=["prefetches", "does not prefetch"])
def test_fsdp_takes_the_time_of_its_schedule(prefetches, reshards, product_ps):
    def script(rank):
        dist.init_process_group("nccl")
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(LAYERS)))
        for layer in (*model, model):
            fully_shard(layer, reshard_after_forward=reshards)
        if not prefetches:
            for layer in model:
                layer.set_modules_to_backward_prefetch([layer])  # which is there already
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(ITERATIONS):
            model(torch.ones(BATCH, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert steady_ps(script, product_ps) == sharded_by_hand(prefetches, reshards, product_ps)


def piped_by_hand(micro_batches: int, product: int) -> int:
    """Return how long an iteration of GPipe takes; a message goes when its receiver has come to it."""
    message = message_ps(ACTIVATION)
    free = [0] * RANKS
    ways = defaultdict(int)
    ends = []

    def compute(stage, kernels, products):
        free[stage] += kernels * SMALL + products * product
        return free[stage]

    def send(source, destination, sent):
        way = source, destination
        ways[way] = free[destination] = max(ways[way], free[destination], sent) + message

    first, last = 0, RANKS - 1
    for _ in range(ITERATIONS):
        for _ in range(micro_batches):
            sent = compute(first, 0, 1)
            for stage in range(1, RANKS):
                send(stage - 1, stage, sent)
                sent = compute(stage, 1 if stage == last else 0, 1)  # the last one's loss
        for _ in range(micro_batches):
            sent = compute(last, 2, 2)  # the loss's gradient; gradients of parameters are added up
            for stage in reversed(range(RANKS - 1)):
                send(stage + 1, stage, sent)
                sent = compute(stage, 1, 2 if stage > first else 1)  # the batch needs no gradient
        for stage in range(RANKS):
            free[stage] = max(free[stage], *(ways[stage, other] for other in (stage - 1, stage + 1)))
            compute(stage, 3 if stage == last else 2, 0)  # mean of gradients, optimizer; the losses together
        ends.append(free[first])
    return ends[-1] - ends[-2]


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_a_pipeline_takes_the_time_of_its_schedule(micro_batches):
    def script(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        layer = nn.Linear(WIDTH, WIDTH, bias=False, device="cuda")
        stage = PipelineStage(layer, rank, RANKS, torch.device("cuda", rank))
        schedule = ScheduleGPipe(stage, micro_batches, loss_fn=lambda output, target: output.sum())
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        batch = torch.ones(BATCH * micro_batches, WIDTH, device="cuda")
        for _ in range(ITERATIONS):
            schedule.step(*([batch] if rank == 0 else []), target=batch if rank == RANKS - 1 else None)
            optimizer.step()

    product = 50_000_000
    taken_ps = steady_ps(script, product)

    assert taken_ps == piped_by_hand(micro_batches, product)


LAUNCH_PS = 5_000_000
NUMEL = 1 << 18
COPY_PS = 4 * NUMEL * 100  # 10 GB/s
H100 = replace(load_device("h100"), host_overhead_ps=LAUNCH_PS, copy_bandwidth=10**10, launch_ps=0)


def pageable() -> torch.Tensor:
    return torch.zeros(NUMEL)


def pinned() -> torch.Tensor:
    return torch.empty(NUMEL, pin_memory=True)


def on_two_streams(tensor: torch.Tensor) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor.to("cuda", non_blocking=True)
    tensor.to("cuda", non_blocking=True)
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("make", "copy", "expected"),
    [
        (pageable, lambda own: own.to("cuda"), LAUNCH_PS + COPY_PS),
        (pageable, lambda own: own.to("cuda", non_blocking=True), LAUNCH_PS + COPY_PS),
        (pinned, lambda own: own.to("cuda"), LAUNCH_PS + COPY_PS),
        (pinned, lambda own: own.to("cuda", non_blocking=True), LAUNCH_PS),
        (pinned, lambda own: own.to("cuda", non_blocking=True).cpu(), LAUNCH_PS + 2 * COPY_PS),
        (pinned, on_two_streams, 2 * LAUNCH_PS + COPY_PS),
    ],
)
def test_the_host_waits_for_copies_but_those_from_pinned_memory_that_may_go_on(make, copy, expected):
    def script(rank):
        tensor, gpu = make(), current_gpu()
        gpu.synchronize()
        began_ps = gpu.now_ps()
        copy(tensor)
        return gpu.now_ps() - began_ps

    assert on_gpus(script, 1, device=H100, fake=True).results == [expected]
