"""Transformer-XL base and large on one A100 in TF32.

Dai et al., ACL 2019, as NVIDIA's DeepLearningExamples train it on WikiText-103 (Transformer-XL for PyTorch,
pytorch/wt103_base.yaml and wt103_large.yaml, mem_transformer.py, utils/proj_adaptive_softmax.py): relative
positions, a memory as long as the target, adaptive softmax with the embedding's matrices.  Rates: its
tables of one GPU of a DGX A100, 32 sequences of 192 tokens and 8 of 384.

Keys and values are computed for the memory too, so a product of projections has twice the rows of the
target.  All words are taken to be of the first, frequent cluster of the vocabulary: what the rare ones cost
in the tails of the softmax is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.shapes.model import Layer, Model, linear, names, norm

CUTOFFS = (0, 19997, 39997, 199997, 267735)
CLUSTERS = len(CUTOFFS) - 2
"""Clusters of rare words; each has an entry in the head."""


@dataclass(frozen=True)
class TransformerXl:
    """Sizes of a Transformer-XL.

    Attributes:
        layers: number of them.
        width: of the model, and of all heads together.
        target: tokens of a sequence, and of its memory.
        batch: sequences of a rank.
        divisor: each cluster's embedding is narrower by this factor than that of the one before.
    """

    layers: int
    width: int
    target: int
    batch: int
    divisor: int


def transformer_xl(sizes: TransformerXl) -> Iterator[Layer]:
    """Yield the layers in order of execution."""
    width, target, keys = sizes.width, sizes.target, 2 * sizes.target
    yield from embedding(sizes)
    for number in range(sizes.layers):
        name = f"layers.{number}.dec_attn"
        yield linear(f"{name}.qkv_net", width, 3 * width, keys, bias=False)
        yield Layer(((f"{name}.r_net.weight", width**2),), width**2 * keys // sizes.batch)  # once for all
        yield Layer((), 3 * target * keys * width)  # scores of contents and positions, weighted values
        yield linear(f"{name}.o_net", width, width, target, bias=False)
        yield norm(f"{name}.layer_norm", width)
        name = f"layers.{number}.pos_ff"
        yield linear(f"{name}.CoreNet.0", width, 4 * width, target)
        yield linear(f"{name}.CoreNet.3", 4 * width, width, target)
        yield norm(f"{name}.layer_norm", width)
    yield from softmax(sizes)


def embedding(sizes: TransformerXl) -> Iterator[Layer]:
    """Yield the biases of all layers' attention, and the embedding with its projections."""
    biases = tuple((f"{name}_bias", sizes.width) for name in ("r_w", "r_r"))
    if sizes.divisor == 1:
        yield Layer((*biases, ("word_emb.emb_layers.0.weight", CUTOFFS[-1] * sizes.width)))
        return
    widths = cluster_widths(sizes)
    rows = [end - start for start, end in pairwise(CUTOFFS)]
    tables = tuple(
        (f"word_emb.emb_layers.{number}.weight", count * width)
        for number, (count, width) in enumerate(zip(rows, widths, strict=True))
    )
    yield Layer((*biases, *tables))
    projections = tuple(
        (f"word_emb.emb_projs.{number}", sizes.width * width) for number, width in enumerate(widths)
    )
    yield Layer(projections, sizes.width**2 * sizes.target)


def softmax(sizes: TransformerXl) -> Iterator[Layer]:
    """Yield the head: its own projection where clusters differ in width, then frequent words and clusters."""
    width = sizes.width
    if sizes.divisor > 1:
        yield Layer((("crit.out_projs.0", width**2),), width**2 * sizes.target)
    rows = [end - start for start, end in pairwise(CUTOFFS)]
    counts = [CUTOFFS[-1]] if sizes.divisor == 1 else rows
    head = (("crit.cluster_weight", CLUSTERS * width), ("crit.cluster_bias", CLUSTERS))
    biases = tuple((f"crit.out_layers_biases.{number}", count) for number, count in enumerate(counts))
    yield Layer((*head, *biases), (CUTOFFS[1] + CLUSTERS) * width * sizes.target)


def cluster_widths(sizes: TransformerXl) -> list[int]:
    """Return how wide the embedding of each cluster is."""
    return [sizes.width // sizes.divisor**number for number in range(CLUSTERS + 1)]


def registered(name: str) -> tuple[int, int]:
    """Sort key: a layer registers ``r_net`` behind its norm, the head its projection behind all else."""
    parts = name.split(".")
    if parts[0] == "layers":
        after = {"r_net": 1}.get(parts[3], 0) if parts[2] == "dec_attn" else 2
        return int(parts[1]), after
    return (-1, 0) if parts[0] != "crit" else (1000, int(parts[1] == "out_projs"))


def model(name: str, sizes: TransformerXl, tokens_per_second: int) -> Model:
    """Return a Transformer-XL of these *sizes*."""
    layers = tuple(transformer_xl(sizes))
    return Model(
        name=f"transformer-xl-{name}",
        title=f"Transformer-XL {name}, {sizes.batch} sequences of {sizes.target} tokens per rank",
        layers=layers,
        dtype="float32",
        itemsize=4,
        batch=sizes.batch,
        samples_per_second=tokens_per_second / sizes.target,
        device=f"one NVIDIA A100 in TF32, {tokens_per_second} tokens/s",
        registration=tuple(sorted(names(layers), key=registered)),
    )


BASE = model("base", TransformerXl(layers=16, width=512, target=192, batch=32, divisor=1), 41527)
LARGE = model("large", TransformerXl(layers=18, width=1024, target=384, batch=8, divisor=4), 14497)
