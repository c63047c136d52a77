"""Ranks that train on the same batches: noticed where they average gradients, whatever gives the batches."""

import gc
import re
from collections.abc import Callable, Iterable
from weakref import ref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from ddp import DistributedDataParallel as OwnDistributedDataParallel
from tests.collectives.virtual.clusters import in_group, mistakes, on_gpus, train

Batches = Iterable[torch.Tensor]


def drawn(seed: int, steps: int = 3, device: str = "cpu") -> Batches:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(4, 8, generator=generator).to(device)


def layer() -> nn.Module:
    return nn.Linear(8, 8)


class Prepared(nn.Module):
    """A layer that gets what *prepare*, which may call *others*, makes of a batch."""

    def __init__(self, prepare: Callable[..., torch.Tensor], *others: nn.Module) -> None:
        super().__init__()
        self.prepare, self.others, self.layer = prepare, nn.ModuleList(others), layer()

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return self.layer(self.prepare(*inputs, **named))


def ddp(batches: Batches) -> None:
    train(DistributedDataParallel(layer()), batches)


def own_ddp(batches: Batches) -> None:
    train(OwnDistributedDataParallel(layer()), batches)


def fsdp2(batches: Batches) -> None:
    train(fully_shard(nn.Sequential(layer(), layer())), batches)


def one_by_one(batches: Batches) -> None:
    train(layer(), batches, lambda model: [dist.all_reduce(own.grad) for own in model.parameters()])


def flattened(batches: Batches) -> None:
    def reduce(model):
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        dist.all_reduce(torch._utils._flatten_dense_tensors(gradients))

    train(layer(), batches, reduce)


def given_by_name(batches: Batches) -> None:
    model = DistributedDataParallel(Prepared(lambda *, inputs: inputs))
    train(model, batches, call=lambda batch: model(inputs=batch))


def given_by_a_loader(batches: Batches) -> None:
    ddp(DataLoader(torch.cat(list(batches)), batch_size=4))


@pytest.mark.parametrize(
    "script", [ddp, own_ddp, fsdp2, one_by_one, flattened, given_by_name, given_by_a_loader]
)
@pytest.mark.parametrize("is_divided", [False, True])
def test_batches_drawn_from_one_seed_are_noticed_with_the_ranks_and_the_line(script, is_divided):
    said = mistakes(lambda rank: script(drawn(rank if is_divided else 0)))

    assert bool(re.search(r"\w+\.py:\d+: ranks 0, 1 train on the same batches", said)) is not is_divided


def test_batches_on_gpus_are_compared_by_their_values():
    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        train(fully_shard(layer().cuda()), drawn(rank // 2, device="cuda"))

    said = "\n".join(on_gpus(work, 4).report.mistakes)

    assert "ranks 0, 1 train on the same batches (sets of ranks that do: 2), and" in said


def test_one_batch_all_along_is_noticed_once():
    assert (
        mistakes(lambda rank: ddp([*drawn(0)][:1] * 3)).count("train on one batch, the same all along") == 1
    )


def own_ddp_without_averages() -> None:
    model = OwnDistributedDataParallel(layer())
    with model.no_sync():
        train(model, drawn(0))


def tensor_parallel() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    mesh = init_device_mesh("cpu", (2,))
    train(parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}), drawn(0))


class Copied(torch.autograd.Function):
    """What enters columns of a tensor parallel layer written by hand; its gradients are summed."""

    @staticmethod
    def forward(ctx, batch):
        return batch.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


def tensor_parallel_by_hand() -> None:
    """The first gradient that there is in a backward pass has as many elements as what is summed next."""
    torch.manual_seed(0)
    model = nn.ModuleList([layer(), nn.Linear(8, 4, bias=False)])
    first, last = model
    train(
        model, drawn(0), lambda model: dist.all_reduce(torch.ones(1)),
        lambda batch: last(Copied.apply(first(batch))),
    )  # fmt: skip


def gradients_of_norms_alone_as_they_come() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(8), layer(), nn.LayerNorm(8))
    for parameter in model[2].parameters():
        parameter.register_post_accumulate_grad_hook(lambda own: dist.all_reduce(own.grad))
    train(model, drawn(0), lambda model: dist.all_reduce(torch.ones(1)))


def gradients_of_norms_alone() -> None:
    model = nn.Sequential(nn.LayerNorm(8), layer())
    train(model, drawn(0), lambda model: [dist.all_reduce(own.grad) for own in model[0].parameters()])


def slices_of_one_batch() -> None:
    ddp(batch[dist.get_rank() :: 2] for batch in drawn(0))


def slices_inside_the_model() -> None:
    train(DistributedDataParallel(Prepared(lambda batch: batch[dist.get_rank() :: 2])), drawn(0))


def nothing_averaged() -> None:
    train(layer(), drawn(0))


def positions_before_tokens() -> None:
    positions = nn.Embedding(4, 8)
    model = DistributedDataParallel(Prepared(lambda: positions(torch.arange(4)) + dist.get_rank(), positions))
    train(model, range(3), call=lambda _: model())


def sequences_divided_after_embeddings() -> None:
    embedding, positions = nn.Embedding(16, 8), nn.Embedding(8, 8)

    def divided(tokens):
        return (embedding(tokens) + positions(torch.arange(8))).chunk(2, dim=1)[dist.get_rank()]

    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(16, (2, 8), generator=generator) for _ in range(3)]
    train(DistributedDataParallel(Prepared(divided, embedding, positions)), batches)


def prompts_before_images() -> None:
    prompts = DistributedDataParallel(nn.Sequential(layer(), layer()))
    images = DistributedDataParallel(layer())
    (fixed,) = drawn(7, steps=1)
    both = nn.ModuleList([prompts, images])
    train(both, drawn(dist.get_rank()), call=lambda batch: prompts(fixed) @ images(batch).T)


def large_batches_that_begin_alike() -> None:
    common = torch.randn(256, 512, generator=torch.Generator().manual_seed(0))
    own = torch.randn(64, 512, generator=torch.Generator().manual_seed(dist.get_rank()))
    train(DistributedDataParallel(nn.Linear(512, 1)), [torch.cat([common, own])] * 3)


def batches_that_are_not_a_number() -> None:
    ddp([torch.full((4, 8), float("nan"))] * 3)


RIGHT = [
    tensor_parallel, tensor_parallel_by_hand, gradients_of_norms_alone,
    gradients_of_norms_alone_as_they_come, slices_of_one_batch, slices_inside_the_model,
    nothing_averaged, own_ddp_without_averages, positions_before_tokens,
    sequences_divided_after_embeddings, prompts_before_images,
    large_batches_that_begin_alike, batches_that_are_not_a_number,
]  # fmt: skip


@pytest.mark.parametrize("script", RIGHT, ids=lambda script: script.__name__)
def test_ranks_that_share_a_batch_by_right_are_left_in_peace(script):
    assert " train on " not in mistakes(lambda rank: script())


def test_the_reductions_of_a_loss_scaler_average_nothing():
    """Ranks 0 and 1 share batches, as in tensor parallelism; FSDP has ranks 0 and 2, 1 and 3."""

    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        group = [dist.new_group([own, own + 2]) for own in range(2)][rank % 2]
        model = FullyShardedDataParallel(layer().cuda(), process_group=group)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), ShardedGradScaler()
        for batch in drawn(rank // 2, device="cuda"):
            scaler.scale(model(batch).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert " train on " not in "\n".join(on_gpus(work, 4).report.mistakes)


def inputs_without_values_of_their_own(rank: int) -> None:
    model, inputs = layer(), torch.randn(4, 8)
    parameters = dict(model.named_parameters())
    torch.func.grad(lambda own: torch.func.functional_call(model, own, (inputs,)).sum())(parameters)
    torch.func.vmap(model)(inputs)


class Returning(nn.Linear):
    """Parameters, and inputs as they are."""

    def forward(self, inputs):
        return inputs


INPUTS: list[Callable[[], object]] = [
    lambda: torch.randn(2, dtype=torch.complex64).conj(), lambda: torch.randn(2, 3).to_sparse(),
    lambda: torch.nested.as_nested_tensor([torch.randn(2), torch.randn(3)]),
    lambda: torch.randn(3, 2, 2).to(torch.float8_e4m3fn).mT, lambda: torch.tensor(True),
    lambda: torch.empty(0, 3), lambda: torch.empty(3, device="meta"),
    lambda: {"a": [torch.arange(3), ("text", None)]},
]  # fmt: skip


@pytest.mark.parametrize(
    "work",
    [
        inputs_without_values_of_their_own,
        *(lambda rank, make=make: Returning(1, 1)(make()) for make in INPUTS),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_of_all_kinds_do_no_harm(work):
    assert mistakes(work) == ""


def operations_that_torch_records(rank: int) -> bool:
    graph = torch.jit.trace(layer(), torch.randn(4, 8)).inlined_graph
    return sum(node.kind().startswith("aten::") for node in graph.nodes()) == 1


def is_gone_when_it_is_dropped(rank: int) -> bool:
    model = layer()
    train(model, drawn(rank, steps=1))
    weight = ref(model.weight)
    del model
    gc.collect()
    return weight() is None


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("holds", [operations_that_torch_records, is_gone_when_it_is_dropped])
def test_a_model_is_as_it_is_without_the_comparison(holds):
    assert all(in_group(holds, 2).results)
