"""Derive ``ddp/profiles/resnet50.json`` from the shapes of ResNet-50's layers.

    python benchmarks/derive_resnet50_profile.py > ddp/profiles/resnet50.json

The model is ResNet-50 v1.5 (He et al., CVPR 2016, the stride in the 3×3 convolution), with its
161 parameter tensors in the order in which torchvision registers them.  A convolution or the last
layer costs 2 floating-point operations per multiply-add in the forward pass, and as much again for
each of its two gradients; the first convolution needs no gradient of its input.  What moves only
memory (batch norm, ReLU, pooling) is not counted by itself: the rate is that of whole training steps.

The rate is that of one NVIDIA A100 in TF32: 770 images/s at batch 256 (NVIDIA's
DeepLearningExamples, ResNet50v1.5 for PyTorch, as measured on one GPU of an ABCI A-node).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp.profile import Gradient, Profile

BATCH = 64
IMAGE = 224
IMAGES_PER_SECOND = 770


@dataclass(frozen=True)
class Layer:
    """A layer with parameters: its tensors, and the multiply-adds of one image forward."""

    tensors: tuple[tuple[str, int], ...]
    multiply_adds: int
    needs_input_gradient: bool = True

    @property
    def forward_flops(self) -> int:
        """Floating-point operations of one image."""
        return 2 * self.multiply_adds

    @property
    def backward_flops(self) -> int:
        """Floating-point operations of one image: the weight's gradient, and the input's."""
        return self.forward_flops * (2 if self.needs_input_gradient else 1)


def convolution(name: str, inputs: int, outputs: int, kernel: int, size: int, first: bool = False) -> Layer:
    """Return a convolution without bias whose output is *size* × *size*."""
    numel = inputs * outputs * kernel**2
    return Layer(((f"{name}.weight", numel),), numel * size**2, needs_input_gradient=not first)


def batch_norm(name: str, channels: int) -> Layer:
    """Return a batch norm."""
    return Layer(((f"{name}.weight", channels), (f"{name}.bias", channels)), 0)


def bottleneck(name: str, inputs: int, width: int, size: int, stride: int, project: bool) -> Iterator[Layer]:
    """Yield the layers of a block whose input is *size* × *size*, in order of registration."""
    outputs, reduced = 4 * width, size // stride
    yield convolution(f"{name}.conv1", inputs, width, 1, size)
    yield batch_norm(f"{name}.bn1", width)
    yield convolution(f"{name}.conv2", width, width, 3, reduced)
    yield batch_norm(f"{name}.bn2", width)
    yield convolution(f"{name}.conv3", width, outputs, 1, reduced)
    yield batch_norm(f"{name}.bn3", outputs)
    if project:
        yield convolution(f"{name}.downsample.0", inputs, outputs, 1, reduced)
        yield batch_norm(f"{name}.downsample.1", outputs)


def resnet50() -> Iterator[Layer]:
    """Yield the layers with parameters, in order of registration, which is that of execution."""
    yield convolution("conv1", 3, 64, 7, IMAGE // 2, first=True)
    yield batch_norm("bn1", 64)
    inputs, size = 64, IMAGE // 4
    for stage, (num_blocks, width, stride) in enumerate(
        ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)), start=1
    ):
        for block in range(num_blocks):
            name = f"layer{stage}.{block}"
            yield from bottleneck(name, inputs, width, size, stride if block == 0 else 1, project=block == 0)
            if block == 0:
                inputs, size = 4 * width, size // stride
    yield Layer((("fc.weight", inputs * 1000), ("fc.bias", 1000)), inputs * 1000)


def derive() -> Profile:
    """Return the profile of one training step at the stated batch and rate."""
    layers = list(resnet50())
    forward = sum(layer.forward_flops for layer in layers)
    backward = sum(layer.backward_flops for layer in layers)
    seconds_per_flop = 1 / (IMAGES_PER_SECOND * (forward + backward))
    done = 0
    gradients: list[Gradient] = []
    for layer in reversed(layers):
        done += layer.backward_flops
        gradients += [
            Gradient(
                name=name,
                numel=numel,
                dtype="float32",
                nbytes=4 * numel,
                ready_seconds=round(done * BATCH * seconds_per_flop, 9),
            )
            for name, numel in reversed(layer.tensors)
        ]
    return Profile(
        name="resnet50",
        source=(
            "derived from layer shapes by benchmarks/derive_resnet50_profile.py: ResNet-50 v1.5, "
            f"{BATCH} images of {IMAGE}x{IMAGE} per rank, {forward / 1e9:.2f} GFLOP forward "
            f"and {backward / 1e9:.2f} GFLOP backward per image"
        ),
        device=(
            f"one NVIDIA A100 in TF32, {IMAGES_PER_SECOND} images/s "
            f"({1e-12 / seconds_per_flop:.1f} TFLOP/s over whole training steps)"
        ),
        forward_seconds=round(forward * BATCH * seconds_per_flop, 9),
        backward_seconds=round(backward * BATCH * seconds_per_flop, 9),
        gradients=tuple(reversed(gradients)),
    )


if __name__ == "__main__":
    print(derive().model_dump_json(by_alias=True, indent=1))
