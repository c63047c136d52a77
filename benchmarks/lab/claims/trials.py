"""Trials of real training on this machine: what each process of a measured claim runs.

``accuracy`` and ``views`` are for 2 ranks, ``whole_batch`` for 4; rank 0 answers with what was found.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel as TorchDdp

from ddp import DistributedDataParallel as OwnDdp
from testbed.scripts.loopback import listen_on_loopback

SEEDS = range(5)
EPOCHS = 12
GLOBAL_BATCH, TRAINED = 128, 11 * 128
PAIRS, WARM_UP = 60, 3
STEPS = 20

WRAPPERS: dict[str, Callable[..., nn.Module]] = {"torch": TorchDdp, "own": OwnDdp}


def accuracy() -> dict[str, Any]:
    """Train on handwritten digits with gradients in 32 and in 16 bits; return the accuracies by seed.

    Data: the 1,797 scans that scikit-learn brings along, 1,408 of them trained on, the rest held out.
    """
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    found: dict[str, list[float]] = {"float32": [], "float16": []}
    for seed in SEEDS:
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
        images = torch.from_numpy(pixels).float().div(16).view(-1, 1, 8, 8)[order]
        labels = torch.from_numpy(digits)[order]
        for kind, accuracies in found.items():
            network = _train_on_digits(images[:TRAINED], labels[:TRAINED], seed, half=kind == "float16")
            with torch.no_grad():
                right = network(images[TRAINED:]).argmax(dim=1) == labels[TRAINED:]
            accuracies.append(right.double().mean().item())
    return dict(found)


def _train_on_digits(images: torch.Tensor, labels: torch.Tensor, seed: int, half: bool) -> nn.Module:
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    model = OwnDdp(network)
    if half:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(GLOBAL_BATCH):
            mine = batch[rank::world_size]
            optimizer.zero_grad()
            cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
    return network


def views() -> dict[str, Any]:
    """Time steps without views and with them, in turns; return the seconds of both by pair."""
    found: dict[str, Any] = {}
    for model, (make, inputs) in _models().items():
        for name, wrap in WRAPPERS.items():
            torch.manual_seed(0)
            sides = [
                _Side(wrap(make(), gradient_as_bucket_view=as_view), inputs) for as_view in (False, True)
            ]
            for _ in range(WARM_UP):
                for side in sides:
                    side.step()
            pairs = torch.tensor([_pair(sides, turn) for turn in range(PAIRS)], dtype=torch.float64)
            dist.all_reduce(pairs, dist.ReduceOp.MAX)
            found[f"{model} {name}"] = pairs.tolist()
    return found


def _pair(sides: list[_Side], turn: int) -> list[float]:
    """Return the seconds of a step of both *sides*, of which the second begins in every other turn."""
    if turn % 2:
        return [side.step() for side in reversed(sides)][::-1]
    return [side.step() for side in sides]


def _models() -> dict[str, tuple[Callable[[], nn.Module], torch.Tensor]]:
    """Return a model whose step is little more than its gradients, and one that computes more."""

    def wide() -> nn.Module:
        return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))

    def convolutional() -> nn.Module:
        layers = [nn.Conv2d(32 if index else 3, 32, 3, padding=1) for index in range(6)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))

    return {"wide": (wide, torch.ones(1, 1024)), "convolutional": (convolutional, torch.ones(4, 3, 32, 32))}


class _Side:
    """A model and its optimizer, of which single steps are timed."""

    def __init__(self, model: nn.Module, inputs: torch.Tensor) -> None:
        self.model = model
        self.inputs = inputs
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step(self) -> float:
        """Take a step from a common start and return its seconds."""
        self.optimizer.zero_grad()
        dist.barrier()
        began = time.perf_counter()
        self.model(self.inputs).sum().backward()
        self.optimizer.step()
        return time.perf_counter() - began


def whole_batch() -> dict[str, Any]:
    """Train on parts of a batch and on the whole of it; return by how much parameters end apart.

    In float64, twenty steps: with parts of one size and of several, with and without batch norm.
    """
    torch.set_num_threads(1)
    found = {}
    for parts, shares in {"equal": (8, 8, 8, 8), "unequal": (20, 6, 4, 2)}.items():
        for norm in (False, True):
            for name, wrap in WRAPPERS.items():
                found[f"{parts} {'norm' if norm else 'plain'} {name}"] = _apart(shares, norm, wrap)
    return found


def _apart(shares: tuple[int, ...], norm: bool, wrap: Callable[..., nn.Module]) -> dict[str, Any]:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 32), *([nn.BatchNorm1d(32)] if norm else []), nn.Tanh(), nn.Linear(32, 4)]
    whole = nn.Sequential(*layers).double()
    model = wrap(copy.deepcopy(whole))
    optimizers = [torch.optim.SGD(side.parameters(), lr=0.1, momentum=0.9) for side in (whole, model)]
    start = sum(shares[: dist.get_rank()])
    mine = slice(start, start + shares[dist.get_rank()])

    for _ in range(STEPS):
        inputs, targets = torch.randn(32, 16).double(), torch.randn(32, 4).double()
        for side, own, optimizer in zip((whole, model), (slice(None), mine), optimizers, strict=True):
            optimizer.zero_grad()
            mse_loss(side(inputs[own]), targets[own]).backward()
            optimizer.step()

    trained, reference = (
        nn.utils.parameters_to_vector(side.parameters()).detach() for side in (model, whole)
    )
    first = trained.clone()
    dist.broadcast(first, src=0)
    differing = (first != trained).sum()
    dist.all_reduce(differing)
    return {"differing": int(differing), "apart": float((trained - reference).abs().max())}


TRIALS = {"accuracy": accuracy, "views": views, "whole_batch": whole_batch}


def trial(name: str) -> dict[str, Any] | None:
    """Run the trial of that name as one of the ranks; return what was found on rank 0."""
    listen_on_loopback()
    dist.init_process_group("gloo")
    found, rank = TRIALS[name](), dist.get_rank()
    dist.destroy_process_group()
    return found if rank == 0 else None
