"""SSD300 with a ResNet-50 on one A100 in TF32.

Liu et al., ECCV 2016, as NVIDIA's DeepLearningExamples train it on COCO (SSD300 v1.1 for PyTorch,
ssd/model.py): ResNet-50 up to its third stage, whose stride is 1, five more blocks, and at six sizes a
convolution for the places of boxes and one for their 81 classes.  The rate: its table of one GPU of a
DGX A100, batch 64.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model, names
from benchmarks.shapes.resnet50 import batch_norm, bottleneck, convolution

IMAGE, CLASSES = 300, 81
CHANNELS = (1024, 512, 512, 256, 256, 256)
NARROW = (256, 256, 128, 128, 128)
SIZES = (38, 19, 10, 5, 3, 1)
BOXES = (4, 6, 6, 6, 4, 4)
"""At each of the six sizes: channels, and default boxes for each place; between them the narrow channels."""

STAGES = ((4, 3, 64, 75, 1), (5, 4, 128, 75, 2), (6, 6, 256, 38, 1))
"""Of the backbone: index, blocks, width, size of the input, stride."""


def ssd300() -> Iterator[Layer]:
    """Yield the layers in order of execution."""
    backbone = "feature_extractor.feature_extractor"
    yield convolution(f"{backbone}.0", 3, 64, 7, IMAGE // 2, first=True)
    yield batch_norm(f"{backbone}.1", 64)
    inputs = 64
    for index, num_blocks, width, size, stride in STAGES:
        for block in range(num_blocks):
            first = block == 0
            own = size if first else -(-size // stride)
            yield from bottleneck(
                f"{backbone}.{index}.{block}", inputs, width, own, stride if first else 1, project=first
            )
            inputs = 4 * width
    for number, narrow in enumerate(NARROW):
        name = f"additional_blocks.{number}"
        yield convolution(f"{name}.0", CHANNELS[number], narrow, 1, SIZES[number])
        yield batch_norm(f"{name}.1", narrow)
        yield convolution(f"{name}.3", narrow, CHANNELS[number + 1], 3, SIZES[number + 1])
        yield batch_norm(f"{name}.4", CHANNELS[number + 1])
    for number in range(len(SIZES)):
        yield predictor(f"loc.{number}", number, 4)
        yield predictor(f"conf.{number}", number, CLASSES)


def predictor(name: str, number: int, values: int) -> Layer:
    """Return the convolution that gives *values* for each default box at a size."""
    outputs = BOXES[number] * values
    numel = 9 * CHANNELS[number] * outputs
    return Layer(((f"{name}.weight", numel), (f"{name}.bias", outputs)), numel * SIZES[number] ** 2)


LAYERS_IN_ORDER = tuple(ssd300())
PARTS = ("feature_extractor", "additional_blocks", "loc", "conf")
"""In the order in which the module registers them."""

MODEL = Model(
    name="ssd300-resnet50",
    title="SSD300 with ResNet-50, 64 images of 300x300 per rank",
    layers=LAYERS_IN_ORDER,
    dtype="float32",
    itemsize=4,
    batch=64,
    samples_per_second=364.27,
    device="one NVIDIA A100 in TF32, 364.27 images/s",
    registration=tuple(sorted(names(LAYERS_IN_ORDER), key=lambda name: PARTS.index(name.split(".")[0]))),
)
