"""ResNet-50 v1.5 on one A100 in TF32.

He et al., CVPR 2016, with the stride in the 3×3 convolution; its 161 parameter tensors in the order in
which torchvision registers them, and the buffers of its 53 batch norms (mean, variance and the number of
batches: ``torch/nn/modules/batchnorm.py``).  The rate: batch 256, NVIDIA's DeepLearningExamples,
ResNet50v1.5 for PyTorch, as measured on one GPU of an ABCI A-node.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model

IMAGE = 224


def convolution(name: str, inputs: int, outputs: int, kernel: int, size: int, first: bool = False) -> Layer:
    """Return a convolution without bias whose output is *size* × *size*."""
    numel = inputs * outputs * kernel**2
    return Layer(((f"{name}.weight", numel),), numel * size**2, needs_input_gradient=not first)


def batch_norm(name: str, channels: int) -> Layer:
    """Return a batch norm, with its running mean and variance and the number of batches that it has seen."""
    tensors = ((f"{name}.weight", channels), (f"{name}.bias", channels))
    return Layer(tensors, buffers=(("float32", 2 * 4 * channels), ("int64", 8)))


def bottleneck(name: str, inputs: int, width: int, size: int, stride: int, project: bool) -> Iterator[Layer]:
    """Yield the layers of a block whose input is *size* × *size*, in order of registration."""
    outputs, reduced = 4 * width, -(-size // stride)
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


MODEL = Model(
    name="resnet50",
    title="ResNet-50 v1.5, 64 images of 224x224 per rank",
    layers=tuple(resnet50()),
    dtype="float32",
    itemsize=4,
    batch=64,
    samples_per_second=770,
    device="one NVIDIA A100 in TF32, 770 images/s",
)
