"""Storages by category and module: cases that can be counted by hand.

Tensors of the device meta stand for a device's.
"""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.held_storage import OUTSIDE, Category
from collectives.virtual.memory.memories import Memories, MemoryLimit, MemoryReport
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


def followed(
    fn: Callable[[Memory], Any], memory_bytes: int | None = None, limit: MemoryLimit = None
) -> Memories:
    """Run *fn* on one rank, with meta as the default device, and return its memories."""
    cluster = Cluster(load_network("switch-100g").topology(1))
    iterations = cluster.shared[Iterations] = Iterations(1)
    memories = Memories(limit)

    def run(rank):
        torch.autograd.set_multithreading_enabled(False)
        memory = memories.make(rank_thread(), memory_bytes)
        with Following(memory), torch.device("meta"):
            fn(memory)

    with memories.followed(), iterations.counted():
        cluster.run(run)
    return memories


def stack(layers: int = LAYERS) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])


def test_parameters_are_what_modules_have_registered():
    def run(memory):
        model = stack()
        model.register_buffer("scale", torch.empty(WIDTH, WIDTH))

        categories, _ = memory.held_now()
        assert categories["parameters"] == LAYERS * WEIGHT
        model(torch.empty(BATCH, WIDTH))
        categories, modules = memory.held_now()
        assert categories["parameters"] == (LAYERS + 1) * WEIGHT
        assert modules["0"] == WEIGHT
        assert modules["Sequential"] == WEIGHT

    followed(run)


def test_each_category_of_a_training_step_is_what_the_hand_counts():
    seen = []

    def run(memory):
        model = stack()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        batch = torch.empty(BATCH, WIDTH)
        for _ in range(2):
            optimizer.zero_grad()
            output = model(batch)
            forward, _ = memory.held_now()
            output.sum().backward()
            del output
            backward, modules = memory.held_now()
            optimizer.step()
            seen.append((forward, backward, modules, memory.held_now()[0]))

    followed(run)

    for number, (forward, backward, modules, after) in enumerate(seen):
        assert forward["parameters"] == backward["parameters"] == after["parameters"] == LAYERS * WEIGHT
        assert forward["activations"] == LAYERS * ACTIVATION
        assert backward["activations"] == 0
        assert backward["gradients"] == after["gradients"] == LAYERS * WEIGHT
        assert forward["gradients"] == 0
        assert forward["optimizer"] == backward["optimizer"] == number * LAYERS * WEIGHT
        assert after["optimizer"] == LAYERS * WEIGHT
        assert after["other"] == ACTIVATION
        assert modules == {str(layer): (2 + number) * WEIGHT for layer in range(LAYERS)} | {
            OUTSIDE: ACTIVATION
        }


def test_checkpointing_holds_the_input_of_each_layer_and_the_inside_of_one():
    def block():
        return nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())])

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(block() for _ in range(LAYERS))

        def forward(self, hidden):
            for inner in self.blocks:
                hidden = checkpoint(inner, hidden, use_reentrant=False)
            return hidden

    peaks = {}

    def run(memory):
        output = Model()(torch.empty(BATCH, WIDTH, requires_grad=True))
        peaks["after"] = memory.held_now()[0]["activations"]
        output.sum().backward()
        peaks["moment"] = memory.peak.moment

    memories = followed(run)

    assert peaks["after"] == LAYERS * ACTIVATION
    assert peaks["moment"].phase in ("recomputation", "backward")
    report = memories.report()
    assert {name.split(".")[0] for name in report.by_module} <= {"blocks", "Model", OUTSIDE}


def test_storages_that_are_resized_are_freed_and_allocated():
    def run(memory):
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

    followed(run)


def test_what_a_collective_gets_is_its_buffer_unless_it_is_a_gradient():
    def run(memory):
        model = nn.Linear(WIDTH, WIDTH, bias=False)
        bucket = torch.empty(WIDTH, WIDTH)
        memory.communicated(bucket)
        model(torch.empty(BATCH, WIDTH)).sum().backward()
        assert model.weight.grad is not None
        memory.communicated(model.weight.grad)
        memory.communicated(model.weight)

        categories, _ = memory.held_now()
        assert categories["collective_buffers"] == categories["gradients"] == WEIGHT
        assert categories["parameters"] == WEIGHT

    followed(run)


def test_the_storage_of_a_tensor_within_another_is_found():
    class Wrapper:
        def __init__(self, local):
            self._local_tensor = local

    def run(memory):
        inner = torch.empty(WIDTH, WIDTH)
        memory.turn_out(Wrapper(inner), Category.GRADIENTS, "layer")
        assert memory.held_now()[0]["gradients"] == WEIGHT

    followed(run)


def test_activations_belong_to_the_module_that_makes_them():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

        def forward(self, hidden):
            for layer in self.layers:
                hidden = functional.gelu(layer(hidden))
            return hidden

    def run(memory):
        output = Model()(torch.empty(BATCH, WIDTH))
        modules = memory.held_now()[1]
        assert modules == {
            "layers.0": WEIGHT + ACTIVATION, "layers.1": WEIGHT + ACTIVATION, "Model": 2 * ACTIVATION,
            OUTSIDE: ACTIVATION,
        }  # fmt: skip
        output.sum().backward()
        assert memory.peak.moment.phase == "backward"
        assert memory.peak.moment.module in ("Model", "layers.1", "layers.0")

    followed(run)


def test_a_small_memory_is_told_of_in_a_small_unit():
    report = MemoryReport(0, 4 * MIB, 0, {}, {}, "iteration 1", fits=False, limit_bytes=MIB)

    assert report.text == "does not fit: 4.00 of 1.00 MiB at iteration 1"


def test_garbage_that_is_found_amid_an_allocation_is_freed():
    def run(memory):
        for _ in range(50):
            cycle = [torch.empty(WIDTH, WIDTH)]
            cycle.append(cycle)
        del cycle
        gc.collect()

        assert memory.allocator.allocated == 0

    followed(run)
