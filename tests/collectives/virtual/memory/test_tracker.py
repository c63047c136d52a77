"""Storages by category and module: cases that can be counted by hand.

Tensors of the device meta stand for a device's.
"""

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.held_storage import OUTSIDE, Category, binary
from collectives.virtual.memory.memories import Memories, MemoryReport
from collectives.virtual.memory.tracker import Memory
from sim import Cluster, load_network
from tests.collectives.virtual.clusters import rank_thread

MIB = 2**20
WIDTH, BATCH, LAYERS = 1024, 256, 4
WEIGHT = WIDTH * WIDTH * 4
ACTIVATION = BATCH * WIDTH * 4


class Following(TorchDispatchMode):
    """Tells a memory of all tensors of the meta device that operations return."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self.memory.born(tensor, func)
        return result


def followed(fn: Callable[[Memory], Any]) -> Memories:
    """Run *fn* on one rank, with meta as the default device, and return its memories."""
    cluster = Cluster(load_network("switch-100g").topology(1))
    iterations = cluster.shared[Iterations] = Iterations(1)
    memories = Memories(None)

    def run(rank):
        torch.autograd.set_multithreading_enabled(False)
        memory = memories.make(rank_thread(), None)
        with Following(memory), torch.device("meta"):
            fn(memory)

    with memories.followed(), iterations.counted():
        cluster.run(run)
    return memories


def on_a_rank(fn: Callable[[Memory], Any]) -> Callable[[], None]:
    """Make a test of what *fn* does with the memory of a rank."""

    def test() -> None:
        followed(fn)

    return test


def layer() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH, bias=False)


def batch(**options) -> torch.Tensor:
    return torch.empty(BATCH, WIDTH, **options)


@on_a_rank
def test_parameters_are_what_modules_have_registered(memory):
    model = nn.Sequential(*[layer() for _ in range(LAYERS)])
    model.register_buffer("scale", torch.empty(WIDTH, WIDTH))

    before, _ = memory.held_now()
    model(batch())
    after, modules = memory.held_now()

    assert (before["parameters"], after["parameters"]) == (LAYERS * WEIGHT, (LAYERS + 1) * WEIGHT)
    assert (modules["0"], modules["Sequential"]) == (WEIGHT, WEIGHT)


@on_a_rank
def test_each_category_of_a_training_step_is_what_the_hand_counts(memory):
    model = nn.Sequential(*[layer() for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    inputs = batch()
    for number in range(2):
        optimizer.zero_grad()
        output = model(inputs)
        forward, _ = memory.held_now()
        output.sum().backward()
        del output
        backward, modules = memory.held_now()
        optimizer.step()
        after, _ = memory.held_now()

        assert forward["parameters"] == backward["parameters"] == after["parameters"] == LAYERS * WEIGHT
        assert (forward["activations"], backward["activations"]) == (LAYERS * ACTIVATION, 0)
        assert (forward["gradients"], backward["gradients"]) == (0, LAYERS * WEIGHT)
        assert forward["optimizer"] == backward["optimizer"] == number * LAYERS * WEIGHT
        assert after["gradients"] == after["optimizer"] == LAYERS * WEIGHT
        assert after["other"] == ACTIVATION
        own = {str(name): (2 + number) * WEIGHT for name in range(LAYERS)}
        assert modules == own | {OUTSIDE: ACTIVATION}


def test_checkpointing_holds_the_input_of_each_layer_and_the_inside_of_one():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(*[own for _ in range(3) for own in (nn.Linear(WIDTH, WIDTH), nn.GELU())])
                for _ in range(LAYERS)
            )

        def forward(self, hidden):
            for block in self.blocks:
                hidden = checkpoint(block, hidden, use_reentrant=False)
            return hidden

    def run(memory):
        output = Model()(batch(requires_grad=True))
        assert memory.held_now()[0]["activations"] == LAYERS * ACTIVATION
        output.sum().backward()
        assert memory.peak.moment.phase in ("recomputation", "backward")

    report = followed(run).report()

    assert {name.split(".")[0] for name in report.by_module} <= {"blocks", "Model", OUTSIDE}


@on_a_rank
def test_storages_that_are_resized_are_freed_and_allocated(memory):
    tensor = torch.empty(WIDTH, WIDTH)
    storage = tensor.untyped_storage()

    assert memory.allocator.allocated == WEIGHT
    storage.resize_(0)
    assert memory.allocator.allocated == 0
    storage.resize_(WEIGHT)
    assert memory.allocator.allocated == WEIGHT
    view = tensor.view(-1)
    del tensor, storage
    assert memory.allocator.allocated == WEIGHT
    del view
    assert memory.allocator.allocated == 0


@on_a_rank
def test_what_a_collective_gets_is_its_buffer_unless_it_is_a_gradient(memory):
    model, bucket = layer(), torch.empty(WIDTH, WIDTH)
    memory.communicated(bucket)
    model(batch()).sum().backward()
    memory.communicated(model.weight.grad)
    memory.communicated(model.weight)

    categories, _ = memory.held_now()
    assert categories["collective_buffers"] == categories["gradients"] == categories["parameters"] == WEIGHT


@on_a_rank
def test_the_storage_of_a_tensor_within_another_is_found(memory):
    wrapper = SimpleNamespace(_local_tensor=torch.empty(WIDTH, WIDTH))
    memory.turn_out(wrapper, Category.GRADIENTS, "layer")

    assert memory.held_now()[0]["gradients"] == WEIGHT


@on_a_rank
def test_activations_belong_to_the_module_that_makes_them(memory):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layer() for _ in range(2))

        def forward(self, hidden):
            for own in self.layers:
                hidden = functional.gelu(own(hidden))
            return hidden

    output = Model()(batch())

    assert memory.held_now()[1] == {
        "layers.0": WEIGHT + ACTIVATION, "layers.1": WEIGHT + ACTIVATION, "Model": 2 * ACTIVATION,
        OUTSIDE: ACTIVATION,
    }  # fmt: skip
    output.sum().backward()
    assert memory.peak.moment.phase == "backward"
    assert memory.peak.moment.module in ("Model", "layers.1", "layers.0")


@on_a_rank
def test_garbage_that_is_found_amid_an_allocation_is_freed(memory):
    for _ in range(50):
        cycle = [torch.empty(WIDTH, WIDTH)]
        cycle.append(cycle)
    del cycle
    gc.collect()

    assert memory.allocator.allocated == 0


def test_a_small_memory_is_told_of_in_a_small_unit():
    report = MemoryReport(0, 4 * MIB, 0, {}, {}, "iteration 1", fits=False, limit_bytes=MIB)

    assert report.text == "does not fit: 4.00 of 1.00 MiB at iteration 1"


UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@given(st.one_of(st.integers(1, 4096), st.integers(1, 2**40)))
def test_bytes_are_told_in_the_largest_unit_of_which_there_is_more_than_one(nbytes):
    number, unit = binary(nbytes).split()

    assert float(number) * UNITS[unit] == pytest.approx(nbytes, abs=0.005 * UNITS[unit])
    assert nbytes > UNITS[unit] or unit == "bytes"
    assert unit == "GiB" or nbytes <= 2**10 * UNITS[unit]
