"""Layers of a model and the rate of a device, from which a profile is derived.

A layer costs 2 floating-point operations per multiply-add in the forward pass, and as much again for
each of its two gradients in the backward pass.  What moves only memory (normalization, activations,
embeddings, the optimizer) is not counted by itself: the rate is that of whole training steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layer:
    """A layer: its parameter tensors, and the multiply-adds of one sample forward.

    Attributes:
        tensors: name and number of elements of each, in order of registration.
        multiply_adds: of one sample.
        needs_input_gradient: false for the first layer, whose input is data.
        buffers: type and bytes of what it keeps besides.
    """

    tensors: tuple[tuple[str, int], ...]
    multiply_adds: int = 0
    needs_input_gradient: bool = True
    buffers: tuple[tuple[str, int], ...] = ()

    @property
    def forward_flops(self) -> int:
        """Floating-point operations of one sample."""
        return 2 * self.multiply_adds

    @property
    def backward_flops(self) -> int:
        """Floating-point operations of one sample: the weight's gradient, and the input's."""
        return self.forward_flops * (2 if self.needs_input_gradient else 1)


@dataclass(frozen=True)
class Model:
    """A model on a device.

    Attributes:
        name: of the profile.
        title: the reference model, and what a sample is.
        layers: in order of execution.
        dtype: of the gradients.
        itemsize: bytes of an element of them.
        batch: samples of a rank in one step.
        samples_per_second: of one device over whole training steps.
        device: which, in which precision, and who measured the rate.
        registration: names in order of registration where that is not the order of execution.
    """

    name: str
    title: str
    layers: tuple[Layer, ...]
    dtype: str
    itemsize: int
    batch: int
    samples_per_second: float
    device: str
    registration: tuple[str, ...] = field(default=())


def linear(name: str, inputs: int, outputs: int, rows: int, *, bias: bool = True) -> Layer:
    """Return a linear layer that is applied to *rows* vectors of a sample."""
    tensors = ((f"{name}.weight", inputs * outputs), *(((f"{name}.bias", outputs),) if bias else ()))
    return Layer(tensors, inputs * outputs * rows)


def norm(name: str, width: int, *, bias: bool = True) -> Layer:
    """Return a normalization."""
    return Layer(((f"{name}.weight", width), *(((f"{name}.bias", width),) if bias else ())))


def attention(sequence: int, width: int) -> Layer:
    """Return the products of attention, which have no parameters: scores, and weighted values.

    The whole square counts, causal or not, as in the published formulas of model FLOPs.
    """
    return Layer((), 2 * sequence**2 * width)


def flops(layers: tuple[Layer, ...]) -> tuple[int, int]:
    """Return the operations of one sample forward and backward."""
    return sum(layer.forward_flops for layer in layers), sum(layer.backward_flops for layer in layers)


def names(layers: tuple[Layer, ...]) -> Iterator[str]:
    """Yield the names of the tensors in order of execution."""
    return (name for layer in layers for name, _ in layer.tensors)
