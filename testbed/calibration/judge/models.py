"""Models whose training steps are predicted and measured: of pictures, of text, and of vectors.

They are what practice trains, with its layers, loss and optimizer, and small enough for a processor.  Nothing
of a device is fitted to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional

Step: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class TrainedModel:
    """A model in training.

    Attributes:
        name: of it.
        description: its layers, its batch and its optimizer.
        begin: builds it and returns a step of its training: forward, loss, backward, optimizer.
    """

    name: str
    description: str
    begin: Callable[[], Step]


def _normed(inputs: int, outputs: int, side: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Return a convolution that keeps the edges but for its *stride*, and its batch norm."""
    convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


class _Bottleneck(nn.Module):
    """Three convolutions beside a shortcut (He et al., CVPR 2016)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_normed(inputs, width, 1),
            nn.ReLU(),
            *_normed(width, width, 3, stride),
            nn.ReLU(),
            *_normed(width, outputs, 1),
        )
        self.shortcut = (
            nn.Identity() if inputs == outputs else nn.Sequential(*_normed(inputs, outputs, 1, stride))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class _Block(nn.Module):
    """Causal attention and two linear layers, each behind a norm (Radford et al., 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        joint = self.joint(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return torch.add(x, self.wide(self.norms[1](x)))


class _Transformer(nn.Module):
    """A language model: embeddings, blocks, and a head over the vocabulary."""

    def __init__(self, vocabulary: int, width: int, heads: int, blocks: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        logits: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return logits.view(-1, logits.shape[-1])


def _classify(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, optimizer: torch.optim.Optimizer
) -> Step:
    """Return a step that trains *model* to say *targets* of *inputs*."""

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def _begin_resnet50() -> Step:
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(_Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _classify(model, torch.randn(8, 3, 96, 96), torch.randint(100, (8,)), optimizer)


def _begin_transformer() -> Step:
    model = _Transformer(vocabulary=8192, width=512, heads=8, blocks=3, length=384)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(8192, (2, 385))
    return _classify(model, tokens[:, :-1], tokens[:, 1:].flatten(), optimizer)


def _begin_mlp() -> Step:
    sizes = (1024, 1536, 1536, 1536, 1536)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(1536, 100))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return _classify(model, torch.randn(384, 1024), torch.randint(100, (384,)), optimizer)


MODELS: Mapping[str, TrainedModel] = {
    model.name: model
    for model in (
        TrainedModel("resnet50", "ResNet-50, 8 pictures of 96 × 96, SGD with momentum", _begin_resnet50),
        TrainedModel(
            "transformer", "3 blocks of width 512, 8 heads, 2 × 384 tokens of 8192, AdamW", _begin_transformer
        ),
        TrainedModel("mlp", "5 layers of width 1536, 384 vectors of 1024, Adam", _begin_mlp),
    )
}
