"""Properties of equal layers: issued again from a record, they are as if each had been carried out."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from collectives.virtual import VirtualRun
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.layers.reissued import CARRIED_OUT
from sim.trace import Trace
from tests.collectives.virtual.clusters import on_gpus

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does

WIDTH = 40
TOLD = []
STEP = SimpleNamespace(number=0)


class Block(nn.Module):
    """A perceptron behind a norm."""

    def __init__(self, number: int, bias: bool, dropout: float, recomputes: bool) -> None:
        super().__init__()
        self.recomputes = recomputes
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.down, self.drop = nn.Linear(3 * WIDTH, WIDTH), nn.Dropout(dropout)

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(inner)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.down(self.within(self.up(self.norm(x)))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=False) if self.recomputes else self.body(x)


class Ending(Block):
    """Behind it comes a module that keeps what it returns, and one that launches nothing."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.tanh, self.last = nn.Tanh(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.tanh(super().forward(x)))


class OtherThird(Block):
    """The third does something else."""

    def __init__(self, number: int, *args) -> None:
        super().__init__(number, *args)
        self.is_third = number == 2

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        return inner.sin().cos() if self.is_third else inner


class WiderThird(Block):
    """The third is wider."""

    def __init__(self, number: int, *args) -> None:
        super().__init__(number, *args)
        if number == 2:
            self.up, self.down = nn.Linear(WIDTH, 5 * WIDTH), nn.Linear(5 * WIDTH, WIDTH)


class HookedThird(Block):
    """A part of the third has a hook."""

    def __init__(self, number: int, *args) -> None:
        super().__init__(number, *args)
        if number == 2:
            self.up.register_forward_hook(lambda module, args, output: output * 2)


class Counting(Block):
    """Each counts its calls, and does something else after the first."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        return inner.sin().cos() if self.calls > 1 else inner


class Telling(Block):
    """Each leaves word of what it sees."""

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        TOLD.append(tuple(inner.shape))
        return inner


class Reading(Block):
    """Each goes by a variable of the file, which the script sets."""

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        return inner.sin().cos() if STEP.number == 2 else inner


class Drawing(Block):
    """Each would be left out where the CPU draws so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1 if torch.rand(1) > 1 else super().forward(x)


class Turning(Block):
    """Each does something else every other time, by a list that it has."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.turns = [False, True]

    def within(self, inner: torch.Tensor) -> torch.Tensor:
        self.turns.reverse()
        return inner.sin().cos() if self.turns[0] else inner


KINDS = (Block, Ending, OtherThird, WiderThird, HookedThird, Reading)
SYSTEMS = ("fsdp2", "fsdp2 kept", "hsdp", "ddp", "alone")


@dataclass(frozen=True)
class Layers:
    """A script that trains equal layers.

    Attributes:
        system: how ranks work together.
        layers: how many.
        checkpoint: whether activations are computed again.
        dropout: probability.
        kind: of its layers.
        bias: of the first product.
        batches: whose gradients are added up before a step.
        short: parameters are gathered in bfloat16.
    """

    system: str = "fsdp2"
    layers: int = 4
    checkpoint: bool = False
    dropout: float = 0.0
    kind: type[Block] = Block
    bias: bool = True
    batches: int = 1
    short: bool = False
    steps: int = 3

    def __call__(self, rank: int) -> tuple[object, ...]:
        """Train them for some steps; return what is told of memory, and the generator's state."""
        model = self.made()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        for step in range(self.steps):
            STEP.number = step
            for _ in range(self.batches):
                model(torch.empty(64, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        held = CudaDevices.here().memory.held_at_peak()
        return torch.cuda.memory_stats(), held, torch.cuda.get_rng_state().tolist()

    def made(self) -> nn.Module:
        """Return the model of this rank."""
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
        torch.manual_seed(0)
        with torch.device("cuda"):
            given = self.bias, self.dropout, self.checkpoint
            blocks = nn.Sequential(*(self.kind(number, *given) for number in range(self.layers)))
            model = nn.Sequential(nn.Linear(WIDTH, WIDTH), blocks, nn.Linear(WIDTH, 3))
        return self._divided(model)

    def _divided(self, model: nn.Module) -> nn.Module:
        ranks = dist.get_world_size()
        if self.system == "ddp":
            return DistributedDataParallel(model, bucket_cap_mb=1)
        if self.system == "alone":
            return model
        mesh = init_device_mesh("cuda", (ranks,))
        if self.system == "hsdp":
            mesh = init_device_mesh("cuda", (2, ranks // 2), mesh_dim_names=("copy", "shard"))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if self.short else MixedPrecisionPolicy()
        for module in (*model[1], model):
            fully_shard(
                module, mesh=mesh, mp_policy=policy, reshard_after_forward=self.system != "fsdp2 kept"
            )
        return model


@dataclass(frozen=True)
class GoneBackTwice:
    """A script that goes back twice through layers, the second time in all but the first step."""

    def __call__(self, rank: int) -> None:
        script = Layers()
        model = script.made()
        for step in range(3):
            loss = model(torch.empty(64, WIDTH, device="cuda")).sum()
            loss.backward(retain_graph=step > 0)
            if step:
                loss.backward()


class Scaled(Block):
    """It goes by a number that it is given."""

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.body(x.sin().cos() if scale > 1.5 else x)


@dataclass(frozen=True)
class ByNumbers:
    """A script that gives its layers a number, another one in the last step."""

    def __call__(self, rank: int) -> object:
        model = Layers(kind=Scaled).made()
        scales = []
        for layer in model[1]:
            layer.register_forward_pre_hook(lambda module, args: (*args, scales[-1]))
        for scale in (1.0, 1.0, 2.0):
            scales.append(scale)
            model(torch.empty(64, WIDTH, device="cuda")).sum().backward()
        return torch.cuda.memory_stats()


@dataclass(frozen=True)
class Hooked:
    """A script that hears of the calls of all modules."""

    def __call__(self, rank: int) -> object:
        told = []
        handle = register_module_forward_hook(lambda module, args, output: told.append(type(module).__name__))
        result = Layers()(rank)
        handle.remove()
        return result, told


def again(outcome: VirtualRun) -> int:
    """Return how many calls of layers were issued from a record."""
    texts = [text for text in outcome.report.notices if "equal layers" in text]
    return int(texts[0].split()[0].replace(",", "")) if texts else 0


def check_equal(script: Callable[[int], object], ranks: int, **options) -> int:
    """Check that a run is as if every layer had been carried out; return how many were not."""
    told, traces, runs = [], [Trace(), Trace()], []
    for every_layer, trace in zip((False, True), traces, strict=True):
        TOLD.clear()
        runs.append(on_gpus(script, ranks, fake=True, every_layer=every_layer, trace=trace, **options))
        told.append([*TOLD])
    shortened, whole = runs
    first, second = (run.report.to_json() for run in runs)
    for report in (first, second):
        report["notices"] = [text for text in report["notices"] if "equal layers" not in text]

    assert again(whole) == 0
    assert shortened.times_ps == whole.times_ps
    assert shortened.results == whole.results
    assert first == second
    assert told[0] == told[1]
    assert traces[0].spans == traces[1].spans
    return again(shortened)


def layers() -> st.SearchStrategy[Layers]:
    return st.builds(
        Layers,
        st.sampled_from(SYSTEMS),
        st.integers(2, 5),
        st.booleans(),
        st.sampled_from((0.0, 0.1)),
        st.sampled_from(KINDS),
        st.booleans(),
        st.integers(1, 2),
        st.booleans(),
    )


@settings(max_examples=settings.default.max_examples // 10)
@given(layers())
@example(Layers())
@example(Layers(checkpoint=True, dropout=0.1, short=True))
@example(Layers("hsdp", batches=2))
def test_a_run_is_as_if_every_layer_had_been_carried_out(script):
    check_equal(script, 4)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("kind", [Block, Ending])
def test_all_layers_but_those_of_one_rank_and_step_are_issued_from_a_record(kind, checkpoint):
    script = Layers(checkpoint=checkpoint, dropout=0.1, kind=kind)

    assert check_equal(script, 2, fold=False) == (2 * script.steps - 1) * script.layers


@pytest.mark.parametrize("kind", [Counting, Telling, Drawing, Turning])
def test_layers_that_do_more_than_compute_are_carried_out(kind):
    assert check_equal(Layers(kind=kind), 2, fold=False) == 0


def test_layers_go_by_the_numbers_that_they_are_given():
    assert check_equal(ByNumbers(), 2) > 0


def test_hooks_of_all_modules_are_called():
    assert check_equal(Hooked(), 2, fold=False) == 0


def test_a_run_that_goes_back_twice_through_a_layer_carries_out_every_layer():
    outcome = on_gpus(GoneBackTwice(), 1, fake=True)
    alone = on_gpus(GoneBackTwice(), 1, fake=True, every_layer=True)

    assert outcome.report.seconds == alone.report.seconds
    assert CARRIED_OUT in str(outcome.report.notices)
    assert CARRIED_OUT not in str(alone.report.notices)
