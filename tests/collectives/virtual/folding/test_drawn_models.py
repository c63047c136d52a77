"""Properties of folded models without data whose weights are drawn, and do not divide by the ranks.

DTensor agrees on the state of a random generator before it first draws: rank 0 broadcasts it.  Ranks with an
empty shard, another shard or another seed are not to be taken for ranks that a script gives other objects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.collectives.virtual.clusters import check_folded, on_gpus
from tests.collectives.virtual.training_scripts import Attention, Perceptron

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

INITIALISERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "normal": nn.init.normal_, "uniform": nn.init.uniform_, "truncated": nn.init.trunc_normal_,
    "xavier": nn.init.xavier_uniform_, "kaiming": nn.init.kaiming_normal_,
}  # fmt: skip
"""Not ``orthogonal_``, which torch refuses of a `DTensor` whose rows do not divide by the ranks."""
PARALLELISMS = ("fsdp2", "hsdp", "tp", "fsdp2 and tp")
TENSOR_RANKS = 4


@dataclass(frozen=True)
class DrawnModel:
    """A script that trains a language model whose weights are drawn on the device.

    Attributes:
        parallelism: how ranks divide it.
        vocabulary: rows of the embedding and of the head.
        width: of its tensors.
        initialiser: of matrices.
        tied: whether embedding and head are one weight.
        dropout: probability.
        seeded: whether all ranks have the same seed.
        draws: whether DTensors are drawn while it is trained, too.
    """

    parallelism: str
    vocabulary: int = 50257
    width: int = 60
    initialiser: str = "normal"
    tied: bool = False
    dropout: float = 0.0
    seeded: bool = True
    draws: bool = False

    def __call__(self, rank: int) -> None:
        """Train it for two steps."""
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.manual_seed(0 if self.seeded else rank)
        with torch.device("meta"):
            model = self._model()
        self._divide(model)
        model.to_empty(device="cuda")
        for weight in model.parameters():
            INITIALISERS[self.initialiser](weight) if weight.dim() > 1 else nn.init.zeros_(weight)

        optimizer = torch.optim.SGD(model.parameters(), foreach=False)
        for _ in range(2):
            words = torch.randint(self.vocabulary, (2, 8), device="cuda")
            nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
            if self.draws:
                self._draw(model)
            optimizer.step()
            optimizer.zero_grad()

    def _model(self) -> nn.Sequential:
        embedding = nn.Embedding(self.vocabulary, self.width)
        head = nn.Linear(self.width, self.vocabulary, bias=False)
        if self.tied:
            head.weight = embedding.weight
        block = (nn.LayerNorm(self.width), Attention(self.width), Perceptron(self.width))
        return nn.Sequential(embedding, nn.Sequential(*block), nn.Dropout(self.dropout), head)

    def _divide(self, model: nn.Sequential) -> None:
        ranks = dist.get_world_size()
        sharding: DeviceMesh | None
        if self.parallelism == "fsdp2":
            sharding = init_device_mesh("cuda", (ranks,))
        elif self.parallelism == "hsdp":
            sharding = init_device_mesh("cuda", (2, ranks // 2), mesh_dim_names=("copy", "shard"))
        else:
            shape = ranks // TENSOR_RANKS, TENSOR_RANKS
            both = init_device_mesh("cuda", shape, mesh_dim_names=("data", "tensors"))
            plan = {"1.2.up": ColwiseParallel(), "1.2.down": RowwiseParallel()}
            if not self.tied:
                plan["0"] = RowwiseParallel(input_layouts=Replicate())
                plan["3"] = ColwiseParallel(output_layouts=Replicate())
            parallelize_module(model, both["tensors"], plan)
            sharding = both["data"] if self.parallelism == "fsdp2 and tp" else None
        if sharding is not None:
            for module in (model[1], model):
                fully_shard(module, mesh=sharding)

    def _draw(self, model: nn.Sequential) -> None:
        weight = next(weight for weight in model.parameters() if isinstance(weight, DTensor))
        with torch.no_grad():
            weight.add_(torch.randn_like(weight))
            nn.functional.dropout(weight, 0.1)


LAST_RANK_HAS_LESS = DrawnModel("fsdp2", 1003, width=72, initialiser="truncated", tied=True, dropout=0.1)
"""On 72 ranks the embedding alone does not divide, and 71 of them have as many rows."""


def drawn_models() -> st.SearchStrategy[DrawnModel]:
    return st.builds(
        DrawnModel,
        st.sampled_from(PARALLELISMS),
        st.integers(16, 3000) | st.sampled_from((50257, 50368, 128256)),
        st.integers(1, 50).map(lambda number: 2 * number),
        st.sampled_from(sorted(INITIALISERS)),
        st.booleans(),
        st.sampled_from((0.0, 0.1)),
        st.booleans(),
        st.booleans(),
    )


def test_a_model_of_which_the_last_rank_has_less_is_folded_on_many_ranks():
    outcome = on_gpus(LAST_RANK_HAS_LESS, 72, fake=True)

    assert outcome.report.ranks_simulated < 64  # so many may have a thread each


@pytest.mark.costly
@settings(max_examples=1)
@given(drawn_models())
def test_a_model_that_is_drawn_takes_as_long_folded_as_with_a_thread_for_each_rank(model):
    check_folded(model, 8, fake=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10)
@given(drawn_models(), st.sampled_from((64, 72, 128, 256, 512, 1024)))
def test_many_models_that_are_drawn_are_folded_on_many_ranks(model, ranks):
    on_gpus(model, ranks, fake=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=8)
@given(drawn_models(), st.sampled_from((16, 32)))
def test_many_models_that_are_drawn_take_as_long_folded(model, ranks):
    check_folded(model, ranks, fake=True)
