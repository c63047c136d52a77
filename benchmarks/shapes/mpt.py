"""MPT from 125 million to 70 billion parameters, as FSDP shards them.

mosaicml/llm-foundry: decoders with learned positions, biases, and the head's matrix that of the embedding;
shapes from scripts/train/yamls/pretrain/mpt-*.yaml, 2048 tokens.  FSDP wraps each block
(llmfoundry/models/mpt/modeling_mpt.py, ``_fsdp_wrap_fn``), so a gradient here is what FSDP scatters at once:
the flat parameter of a block, and that of all that is in none.  Gradients are float32, the type in which
mixed precision ``DEFAULT`` of Composer reduces; parameters are gathered in half of these bytes.

Rates: scripts/train/benchmarking/README.md of that repository, tokens/s of each of 8 GPUs, which includes
whatever of FSDP's communication inside one node was exposed.  Sizes for which none is quoted here have the
share of the peak of the nearest size on the same GPU (their formula of model FLOPs is the one used here but
for the rows of positions).
No recomputation is counted, and whether activations fit into a device's memory is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.shapes.model import Layer, Model, flops

SEQUENCE, VOCABULARY = 2048, 50368
PEAK = {"A100": 312e12, "H100": 989.4e12}
"""FLOP/s of dense matrix products in bfloat16."""


@dataclass(frozen=True)
class Mpt:
    """An MPT and the rate of one of 8 GPUs.

    Attributes:
        size: as in its name.
        width: of the model.
        layers: number of blocks.
        gpu: which.
        microbatch: sequences of a rank in one pass.
        tokens_per_second: published of each GPU; None: derived from *share*.
        share: of the peak, as published for *share_of*.
        share_of: the nearest size that is published on this GPU.
    """

    size: str
    width: int
    layers: int
    gpu: str
    microbatch: int
    tokens_per_second: float | None = None
    share: float = 0.0
    share_of: str = ""


def blocks(mpt: Mpt) -> Iterator[Layer]:
    """Yield the units of FSDP in order of registration: what is in no block, then the blocks."""
    width = mpt.width
    rest = VOCABULARY * width + SEQUENCE * width + 2 * width
    block = 12 * width**2 + 9 * width + 4 * width
    products = 12 * width**2 * SEQUENCE + 2 * SEQUENCE**2 * width
    yield Layer((("transformer", rest),))
    for number in range(mpt.layers):
        yield Layer(((f"transformer.blocks.{number}", block),), products)
    yield Layer((), VOCABULARY * width * SEQUENCE)  # the head, with the embedding's matrix


def model(mpt: Mpt) -> Model:
    """Return *mpt* as a model of the tool that derives profiles."""
    layers = tuple(blocks(mpt))
    if mpt.tokens_per_second is not None:
        rate, source = mpt.tokens_per_second / SEQUENCE, f"{mpt.tokens_per_second:g} tokens/s"
    else:
        rate = mpt.share * PEAK[mpt.gpu] / sum(flops(layers))
        source = f"{100 * mpt.share:.2f} % of its peak as published for {mpt.share_of}"
    return Model(
        name=f"mpt-{mpt.size}",
        title=f"MPT-{mpt.size.upper()} by units of FSDP, {mpt.microbatch} x {SEQUENCE} tokens per rank",
        layers=layers,
        dtype="float32",
        itemsize=4,
        batch=mpt.microbatch,
        samples_per_second=rate,
        device=f"one of 8 NVIDIA {mpt.gpu} 80GB in bfloat16 autocast, {source}",
    )


MODELS = tuple(
    model(mpt)
    for mpt in (
        Mpt("125m", 768, 12, "A100", 32, tokens_per_second=141737),
        Mpt("350m", 1024, 24, "A100", 32, tokens_per_second=58782),
        Mpt("760m", 1536, 24, "A100", 4, share=0.5986, share_of="MPT-1B"),
        Mpt("1b", 2048, 24, "H100", 14, tokens_per_second=45455),
        Mpt("3b", 2560, 32, "A100", 10, tokens_per_second=10811),
        Mpt("7b", 4096, 32, "H100", 6, tokens_per_second=10643),
        Mpt("13b", 5120, 40, "H100", 2, tokens_per_second=4792),
        Mpt("30b", 7168, 48, "H100", 2, share=0.3979, share_of="MPT-13B"),
        Mpt("70b", 8192, 80, "H100", 2, share=0.3979, share_of="MPT-13B"),
    )
)
