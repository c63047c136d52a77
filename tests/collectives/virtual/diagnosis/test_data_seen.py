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
from tests.collectives.virtual.clusters import in_group, on_gpus

SAME = "train on the same batches"


def said(work, ranks: int = 2) -> str:
    return "\n".join(in_group(work, ranks).report.mistakes)


def drawn(seed: int, steps: int = 3, device: str = "cpu") -> Iterable[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randn(4, 8, generator=generator).to(device)


def train(
    model: nn.Module, batches: Iterable[torch.Tensor], reduce: Callable[[nn.Module], None] | None = None
) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        model(batch).square().mean().backward()
        if reduce is not None:
            reduce(model)
        optimizer.step()
        optimizer.zero_grad()


def ddp(seed: int) -> None:
    train(DistributedDataParallel(nn.Linear(8, 8)), drawn(seed))


def own_ddp(seed: int) -> None:
    train(OwnDistributedDataParallel(nn.Linear(8, 8)), drawn(seed))


def own_ddp_without_averages() -> None:
    model = OwnDistributedDataParallel(nn.Linear(8, 8))
    with model.no_sync():
        train(model, drawn(0))


def fsdp2(seed: int) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    fully_shard(model)
    train(model, drawn(seed))


def one_by_one(seed: int) -> None:
    def reduce(model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

    train(nn.Linear(8, 8), drawn(seed), reduce)


def flattened(seed: int) -> None:
    def reduce(model):
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch._utils._flatten_dense_tensors(gradients)
        dist.all_reduce(flat)

    train(nn.Linear(8, 8), drawn(seed), reduce)


def given_by_name(seed: int) -> None:
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, *, inputs):
            return self.layer(inputs)

    model = DistributedDataParallel(Named())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in drawn(seed):
        model(inputs=batch).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("script", [ddp, own_ddp, fsdp2, one_by_one, flattened, given_by_name])
@pytest.mark.parametrize("is_divided", [False, True])
def test_batches_drawn_from_one_seed_are_noticed_with_the_ranks_and_the_line(script, is_divided):
    text = said(lambda rank: script(rank if is_divided else 0))

    assert bool(re.search(rf"test_data_seen.py:\d+: ranks 0, 1 {SAME}", text)) is not is_divided


def test_batches_on_gpus_are_compared_by_their_values():
    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        model = nn.Linear(8, 8).cuda()
        fully_shard(model)
        train(model, drawn(rank // 2, device="cuda"))

    text = "\n".join(on_gpus(work, 4).report.mistakes)

    assert "ranks 0, 1 train on the same batches (sets of ranks that do: 2), and" in text


@pytest.mark.parametrize("is_divided", [False, True])
def test_batches_of_a_loader_are_noticed_with_its_line(is_divided):
    def work(rank):
        data = torch.arange(64.0).reshape(8, 8)[rank::2] if is_divided else torch.arange(64.0).reshape(8, 8)
        train(DistributedDataParallel(nn.Linear(8, 8)), DataLoader(data, batch_size=2))

    assert (SAME in said(work)) is not is_divided


def test_one_batch_all_along_is_noticed_once():
    batch = next(iter(drawn(0)))

    text = said(lambda rank: train(DistributedDataParallel(nn.Linear(8, 8)), [batch] * 3))

    assert text.count("train on one batch, the same all along") == 1


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

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4, bias=False)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.last(Copied.apply(self.first(batch)))
            return result

    torch.manual_seed(0)
    train(Layers(), drawn(0), lambda model: dist.all_reduce(torch.ones(1)))


def gradients_of_norms_alone_as_they_come() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8))
    for parameter in model[2].parameters():
        parameter.register_post_accumulate_grad_hook(lambda own: dist.all_reduce(own.grad))
    train(model, drawn(0), lambda model: dist.all_reduce(torch.ones(1)))


def gradients_of_norms_alone() -> None:
    def reduce(model):
        for parameter in model[0].parameters():
            dist.all_reduce(parameter.grad)

    train(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)), drawn(0), reduce)


def slices_of_one_batch() -> None:
    train(DistributedDataParallel(nn.Linear(8, 8)), (batch[dist.get_rank() :: 2] for batch in drawn(0)))


def slices_inside_the_model() -> None:
    class Slicing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, batch):
            return self.layer(batch[dist.get_rank() :: 2])

    train(DistributedDataParallel(Slicing()), drawn(0))


def nothing_averaged() -> None:
    train(nn.Linear(8, 8), drawn(0))


def positions_before_tokens() -> None:
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions, self.layer = nn.Embedding(4, 8), nn.Linear(8, 8)

        def forward(self):
            own = self.positions(torch.arange(4))
            return self.layer(own + dist.get_rank())

    model = DistributedDataParallel(Positions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model().sum().backward()
        optimizer.step()


def sequences_divided_after_embeddings() -> None:
    class Divided(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(16, 8), nn.Embedding(8, 8)
            self.layer = nn.Linear(8, 8)

        def forward(self, tokens):
            embedded = self.tokens(tokens) + self.positions(torch.arange(8))
            return self.layer(embedded.chunk(2, dim=1)[dist.get_rank()])

    generator = torch.Generator().manual_seed(0)
    train(
        DistributedDataParallel(Divided()), [torch.randint(16, (2, 8), generator=generator) for _ in range(3)]
    )


def prompts_before_images() -> None:
    prompts = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    images = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD([*prompts.parameters(), *images.parameters()], lr=0.1)
    fixed = next(iter(drawn(7)))
    for batch in drawn(dist.get_rank()):
        (prompts(fixed) @ images(batch).T).sum().backward()
        optimizer.step()


def large_batches_that_begin_alike() -> None:
    common = torch.randn(256, 512, generator=torch.Generator().manual_seed(0))
    own = torch.randn(64, 512, generator=torch.Generator().manual_seed(dist.get_rank()))
    train(DistributedDataParallel(nn.Linear(512, 1)), [torch.cat([common, own])] * 3)


def batches_that_are_not_a_number() -> None:
    train(DistributedDataParallel(nn.Linear(8, 8)), [torch.full((4, 8), float("nan"))] * 3)


RIGHT = [
    tensor_parallel, tensor_parallel_by_hand, gradients_of_norms_alone,
    gradients_of_norms_alone_as_they_come, slices_of_one_batch, slices_inside_the_model,
    nothing_averaged, own_ddp_without_averages, positions_before_tokens,
    sequences_divided_after_embeddings, prompts_before_images,
    large_batches_that_begin_alike, batches_that_are_not_a_number,
]  # fmt: skip


@pytest.mark.parametrize("script", RIGHT, ids=lambda script: script.__name__)
def test_ranks_that_share_a_batch_by_right_are_left_in_peace(script):
    assert " train on " not in said(lambda rank: script())


def test_inputs_that_have_no_values_of_their_own_do_no_harm():
    def work(rank):
        model, inputs = nn.Linear(8, 8), torch.randn(4, 8)
        parameters = dict(model.named_parameters())
        torch.func.grad(lambda own: torch.func.functional_call(model, own, (inputs,)).sum())(parameters)
        torch.func.vmap(model)(inputs)

    assert said(work) == ""


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(2, dtype=torch.complex64).conj(), lambda: torch.randn(2, 3).to_sparse(),
        lambda: torch.nested.as_nested_tensor([torch.randn(2), torch.randn(3)]),
        lambda: torch.randn(3, 2, 2).to(torch.float8_e4m3fn).mT, lambda: torch.tensor(True),
        lambda: torch.empty(0, 3), lambda: torch.empty(3, device="meta"),
        lambda: {"a": [torch.arange(3), ("text", None)]},
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_of_all_kinds_are_taken_as_they_are(make):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.Parameter(torch.ones(1))

        def forward(self, inputs):
            return inputs

    def work(rank):
        Own()(make())

    assert said(work) == ""


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_a_program_that_torch_records_has_nothing_of_the_comparison():
    def work(rank):
        graph = torch.jit.trace(nn.Linear(8, 8), torch.randn(4, 8)).inlined_graph
        return sum(node.kind().startswith("aten::") for node in graph.nodes())

    assert in_group(work, 2).results == [1, 1]


def test_a_model_that_a_script_drops_is_gone_before_the_run_ends():
    def work(rank):
        model = nn.Linear(8, 8)
        train(model, drawn(rank, steps=1))
        weight = ref(model.weight)
        del model
        gc.collect()
        return weight() is None

    assert all(in_group(work, 2).results)


def test_the_reductions_of_a_loss_scaler_average_nothing():
    """Ranks 0 and 1 share batches, as in tensor parallelism; FSDP has ranks 0 and 2, 1 and 3."""

    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        group = [dist.new_group([own, own + 2]) for own in range(2)][rank % 2]
        model = FullyShardedDataParallel(nn.Linear(8, 8).cuda(), process_group=group)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), ShardedGradScaler()
        for batch in drawn(rank // 2, device="cuda"):
            scaler.scale(model(batch).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    assert " train on " not in "\n".join(on_gpus(work, 4).report.mistakes)
