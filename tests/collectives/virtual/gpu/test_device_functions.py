"""Answers to a script about its CUDA devices, with and without a GPU as the model of computation."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.cuda.nccl
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from collectives import NotSupportedError
from collectives.virtual import Roofline, VirtualRun, run
from collectives.virtual.gpu.accelerator import NO_MEMORY
from sim import RankError
from tests.collectives.virtual.clusters import Work, on_gpus

RANKS = 2
H100 = "h100"


def run_with(model: str | None, work: Callable[[int], Any], fake: bool = False) -> VirtualRun:
    return run(work, RANKS, "dgx-h100", compute=Roofline(model) if model else None, fake=fake)


QUESTIONS: list[Any] = []
"""What each of two ranks asks, and the answers of all."""


def answered(*expected: Any) -> Callable[[Work], Work]:
    """Ask the function behind it, of which each rank expects its own answer, or all the only one."""

    def asked(work: Work) -> Work:
        answers = list(expected) * (RANKS // len(expected))
        QUESTIONS.append(pytest.param(work, answers, id=work.__name__))
        return work

    return asked


@answered(True)
def forked_generator(rank: int) -> bool:
    torch.cuda.set_device(rank)
    torch.cuda.manual_seed(5)
    with torch.random.fork_rng(devices=[rank]):
        inside = torch.rand(3, device="cuda")
    return torch.equal(inside.cpu(), torch.rand(3, device="cuda").cpu())


@answered((True,) * 4)
def two_generators(rank: int) -> tuple[bool, ...]:
    """Draw on the CPU and on the device in turn, and say what does not disturb what."""
    torch.manual_seed(7)
    alone = torch.rand(4)
    torch.manual_seed(7)
    first, on_device = torch.rand(2), torch.rand(2, device="cuda")
    torch.cuda.manual_seed(rank)
    torch.nn.functional.dropout(on_device)
    state = torch.cuda.get_rng_state()
    before = torch.randint(1000, (9,), device="cuda").tolist()
    second = torch.rand(2)
    torch.cuda.set_rng_state(state)
    return (
        torch.equal(torch.cat([first, second]), alone),
        torch.equal(on_device.cpu(), first),
        torch.equal(torch.cuda.get_rng_state(), state),
        torch.randint(1000, (9,), device="cuda").tolist() == before,
    )


@answered((True,) * 3)
def default_generators(rank: int) -> tuple[bool, ...]:
    """Say whether the device's generator, by its number, is the one that is seeded, read and drawn from."""
    own = torch.cuda.default_generators[torch.cuda.current_device()]
    own.manual_seed(5 + rank)
    state, drawn = own.get_state(), torch.rand(3, device="cuda").tolist()
    own.set_state(state)
    again = torch.rand(3, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    generators = list(torch.cuda.default_generators)
    return (
        drawn == again == torch.rand(3, device="cuda").tolist(),
        own.initial_seed() == torch.cuda.initial_seed() == 5 + rank,
        [one.device.index for one in generators] == list(range(torch.cuda.device_count())),
    )


@answered([True, True])
def checkpointed_dropout(rank: int) -> list[bool]:
    """Say whether what is computed again drops what was dropped, with either kind of checkpoint."""
    alike = []
    for reentrant in (True, False):
        tensor = torch.ones(64, device="cuda", requires_grad=True)
        kept = checkpoint(lambda x: torch.nn.functional.dropout(x * 1), tensor, use_reentrant=reentrant)
        kept.sum().backward()
        alike.append(torch.equal(kept.cpu(), tensor.grad.cpu()))
    return alike


@answered(6.0)
def recorded_stream(rank: int) -> float:
    side, tensor = torch.cuda.Stream(), torch.ones(3, device="cuda")
    with torch.cuda.stream(side):
        doubled = tensor * 2
    tensor.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    return doubled.sum().item()


def under_autocast(forward_of, backward_of) -> tuple[Any, ...]:
    """Return whether autocast is on in a function's passes, and the type and the gradient of its result."""
    seen = []

    def doubled(ctx, tensor):
        seen.append(torch.is_autocast_enabled())
        return tensor * 2

    passes = {"forward": staticmethod(forward_of(doubled)), "backward": staticmethod(backward_of(doubled))}
    function = type("Twice", (torch.autograd.Function,), passes)
    leaf = torch.ones(2, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = function.apply(leaf)
    result.sum().backward()
    return seen, result.dtype, leaf.grad.tolist()


@answered(([True, True], torch.float32, [2.0, 2.0]))
def former_function_with_autocast(rank: int) -> tuple[Any, ...]:
    return under_autocast(torch.cuda.amp.custom_fwd, torch.cuda.amp.custom_bwd)


@answered(([False, False], torch.float16, [2.0, 2.0]))
def function_that_casts(rank: int) -> tuple[Any, ...]:
    forward_of = torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    return under_autocast(forward_of, torch.amp.custom_bwd(device_type="cuda"))


@answered([False, True, False, torch.bfloat16])
def autocast_of_each_device(rank: int) -> list[Any]:
    before = torch.is_autocast_enabled()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        inside = torch.is_autocast_enabled(), torch.is_autocast_enabled("cpu")
        return [before, *inside, torch.get_autocast_dtype("cuda")]


@answered(None)
def recorded_history(rank: int) -> None:
    torch.cuda.memory._record_memory_history(max_entries=100)
    torch.ones(3, device="cuda")
    torch.cuda.memory._record_memory_history(enabled=None)


@answered([0] * 9)
def devices_by_number(rank: int) -> list[int | None]:
    """Say by how much what is on device 0, or on the current one, is elsewhere."""
    torch.cuda.set_device(rank)
    first = torch.ones(1).to("cuda:0"), torch.ones(1).cuda(0), torch.ones(1, device="cuda:0")
    current = torch.ones(1).to("cuda"), torch.tensor(1.0).cuda(), torch.ones(1, device="cuda")
    on_first, on_current = nn.Linear(1, 1).to("cuda:0"), nn.Linear(1, 1).cuda()
    found = [tensor.device.index for tensor in (*first, on_first.weight)]
    found += [tensor.device.index - rank for tensor in (*current, on_current.weight, on_current.bias)]
    return found


@answered([1, 0, 1] * 5, [0, 1, 0] * 5)
def devices_named_in_every_way(rank: int) -> list[int]:
    torch.cuda.set_device(rank)
    other, found = 1 - rank, []
    context = torch.cuda.device(other)
    for name in (other, f"cuda:{other}", torch.device("cuda", other), torch.ones(1).cuda(other), context):
        with torch.cuda.device(name) if name is not context else context:
            found.append(torch.cuda.current_device())
        found.append(torch.cuda.current_device())
        torch.cuda.set_device(name)
        found.append(torch.cuda.current_device())
        torch.cuda.set_device(rank)
    return found


@answered(*([1 - rank, True, rank, True] * 2 + [1 - rank, True, True] for rank in range(RANKS)))
def contexts_entered_again(rank: int) -> list[Any]:
    torch.cuda.set_device(rank)
    before, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    device, on_stream = torch.cuda.device(1 - rank), torch.cuda.stream(stream)
    nothing = torch.cuda.stream(None)
    said = []
    for _ in range(2):
        with device, on_stream, nothing, on_stream:
            said += [torch.cuda.current_device(), torch.cuda.current_stream() == stream]
        said += [torch.cuda.current_device(), torch.cuda.current_stream() == before]
    are_known = isinstance(device, torch.cuda.device) and isinstance(on_stream, torch.cuda.StreamContext)
    return [*said, device.idx, on_stream.stream is stream, are_known]


@answered(([2.0, 2.0], [2.0, 2.0]), ([3.0, 3.0], [3.0, 3.0]))
def branches(rank: int) -> tuple[list[float], list[float]]:
    tensor = torch.ones(2, device="cuda", requires_grad=True)
    result = torch.cond(tensor.sum() > 2 * rank, lambda x: x * 2, lambda x: x * 3, (tensor,))
    result.sum().backward()
    return result.tolist(), tensor.grad.tolist()


@answered([
    "cuda:1", True, 1, [[1.0] * 3, [2.0] * 3], torch.bfloat16, [[1, 0], [1, 1], [1, 2]], 6.0, "cpu",
    "tensor([1., 1., 1.], device='cuda:1')",
])  # fmt: skip
def what_a_tensor_says(rank: int) -> list[Any]:
    torch.cuda.set_device(1)
    tensor = torch.ones(2, 3).cuda()
    row = tensor[1]
    row += 1
    with torch.autocast("cuda", dtype=torch.bfloat16):
        product = tensor @ tensor.T
    return [
        str(tensor.device), tensor.is_cuda, tensor.get_device(), tensor.tolist(), product.dtype,
        torch.nonzero(tensor > 1).tolist(), tensor[tensor > 1].sum().item(), tensor.cpu().device.type,
        repr(tensor[0]),
    ]  # fmt: skip


@answered([[5.0, 6.0, 0.0, 0.0, 1.0, 1.0], [1.0, 1.0]])
def written_through_views(rank: int) -> list[list[float]]:
    base = torch.zeros(6, device="cuda")
    base[2:].view(2, 2)[1].view(torch.int32).fill_(0x3F800000)
    base.chunk(3)[0].copy_(torch.tensor([5.0, 6.0]))
    return [base.tolist(), base[2:4].as_strided((2,), (1,), 4).tolist()]


@answered([[[3.0, 1.0], [2.0, 4.0]], [4.0], "cuda"])
def made_of_numbers_on_the_device(rank: int) -> list[Any]:
    total = torch.tensor([3.0, 4.0], device="cuda")
    made = torch.tensor([[total[0], 1.0], [2, total[1]]], device="cuda")
    return [made.tolist(), torch.tensor([total[1]]).tolist(), made.new_tensor([total[0]]).device.type]


@answered(["12.8", (2, 27, 5), None])
def versions(rank: int) -> list[Any]:
    torch.ones(1, device="cuda")
    return [torch.version.cuda, torch.cuda.nccl.version(), torch.version.hip]


@pytest.mark.parametrize("model", [None, H100])
@pytest.mark.parametrize(("work", "expected"), QUESTIONS)
@pytest.mark.filterwarnings("ignore:.torch.cuda.amp.custom:FutureWarning")
def test_what_a_script_asks_is_answered_as_on_a_gpu(work, expected, model):
    before = torch.version

    assert run_with(model, work).results == expected
    assert torch.version is before


@pytest.mark.parametrize("model", [None, H100])
def test_every_function_of_cuda_without_arguments_answers_or_is_refused_by_name(model):
    def work(rank):
        torch.ones(1, device="cuda")
        failed = {}
        for name, function in inspect.getmembers(torch.cuda, inspect.isroutine):
            required = [
                parameter
                for parameter in inspect.signature(function).parameters.values()
                if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]
            if name.startswith("_") or required:
                continue
            try:
                function()
            except Exception as error:
                if not (isinstance(error, NotSupportedError) and f"torch.cuda.{name}" in str(error)):
                    failed[name] = repr(error)
        return failed

    assert run_with(model, work).results == [{}] * RANKS


@pytest.mark.parametrize(
    ("model", "name", "peak", "notices"), [(None, "virtual GPU", 0, (NO_MEMORY,)), (H100, "h100", 1536, ())]
)
def test_name_and_memory_are_those_of_the_device(model, name, peak, notices):
    def work(rank):
        tensor = torch.empty(300, device="cuda")
        statistics = torch.cuda.memory_stats()
        assert tensor.is_cuda
        names = {torch.cuda.get_device_name(), torch.cuda.get_device_properties(rank).name}
        return names, statistics["active_bytes.all.peak"], statistics["num_ooms"]

    outcome = run_with(model, work)

    assert outcome.results == [({name}, peak, 0)] * RANKS
    assert outcome.report.notices == notices


@pytest.mark.parametrize("model", [None, H100])
@pytest.mark.parametrize(
    "work",
    [
        lambda rank: torch.cuda.set_device(12),
        lambda rank: torch.ones(2).to("cuda:12"),
        lambda rank: torch.ones(2, device="cuda:12"),
    ],
)
def test_a_device_that_is_not_there_is_named_in_cudas_words(work, model):
    with pytest.raises(RankError, match="CUDA error: invalid device ordinal: cuda:12"):
        run_with(model, work)


@pytest.mark.parametrize("model", [None, H100, "laptop-cpu"])
def test_a_branch_on_the_cpu_is_the_one_that_data_says(model):
    def work(rank):
        tensor = torch.ones(2)
        result = torch.cond(tensor.sum() > 2 * rank, lambda x: x * 2, lambda x: x * 3, (tensor,))
        return list(result.tolist())

    assert run_with(model, work).results == [[2.0, 2.0], [3.0, 3.0]]


def branching(rank: int) -> None:
    tensor = torch.randn(1 << 12, device="cuda")
    torch.cond(tensor.sum() > 0, lambda x: x * 2, lambda x: x * 3, (tensor,))


def of_two_devices(rank: int) -> torch.Tensor:
    return torch.ones(2, device="cuda") + torch.ones(2)


def sparse(rank: int) -> torch.Tensor:
    return torch.eye(2).to_sparse().cuda()


@pytest.mark.parametrize(
    ("work", "model", "fake", "words"),
    [
        (branching, H100, True, r"torch\.cond takes depends on data, at "),
        (sparse, H100, False, "does not go with sparse tensors on virtual CUDA"),
        (of_two_devices, None, False, "cuda:0, cpu|two devices|same device"),
        (of_two_devices, H100, False, "cuda:0, cpu|two devices|same device"),
    ],
)
def test_what_a_device_cannot_do_is_refused(work, model, fake, words):
    with pytest.raises((RankError, NotSupportedError), match=words):
        run_with(model, work, fake=fake)


def test_devices_of_a_large_node_have_numbers_below_eight():
    def work(rank):
        torch.cuda.set_device(rank)
        weight = torch.ones(2, device=f"cuda:{rank}", requires_grad=True)
        (weight * 2).sum().backward()
        return torch.cuda.device_count(), torch.cuda.current_device(), weight.grad.device.index

    ran = on_gpus(work, 10, "gb200-nvl72")

    assert ran.results == [(10, rank % 8, rank % 8) for rank in range(10)]
    assert any("without CUDA torch numbers 8 devices of a node" in text for text in ran.report.notices)


def test_sparse_tensors_of_the_device_are_summed_over_ranks_where_nothing_is_modelled():
    def work(rank):
        dist.init_process_group("nccl")
        tensor = torch.eye(2).mul(rank + 1).to_sparse().cuda()
        dist.all_reduce(tensor)
        return tensor.device.type, tensor.cpu().to_dense().tolist()

    assert run_with(None, work).results == [("cuda", [[3.0, 0.0], [0.0, 3.0]])] * RANKS
