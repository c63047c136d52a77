"""Transformer-big on one A100 in TF32.

Vaswani et al., NeurIPS 2017, as NVIDIA's DeepLearningExamples train it on WMT 14 English-German (Transformer
for PyTorch, fairseq/models/transformer.py, ``transformer_wmt_en_de_big_t2t``): norms before each part, no
biases in attention, one matrix for both embeddings and the head.  The vocabulary of 33,708 is that of its
README, with four special symbols.  The rate: its table of one GPU of a DGX A100, 10,240 tokens a batch.

The tokens of the tables are those of the target.  Sentences are taken to have 32 tokens in either language;
only the products of attention depend on that, and they are small.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model, attention, linear, names, norm

WIDTH, INNER, LAYERS, VOCABULARY, TOKENS, BATCH_TOKENS = 1024, 4096, 6, 33708 + 4, 32, 10240
TOKENS_PER_SECOND = 51057
PARTS = (
    "self_attn",
    "self_attn_layer_norm",
    "encoder_attn",
    "encoder_attn_layer_norm",
    "fc1",
    "fc2",
    "maybe_ln1",
    "maybe_ln2",
    "final_layer_norm",
)
"""Of a layer, in the order in which it registers them."""


def transformer_big() -> Iterator[Layer]:
    """Yield the layers in order of execution."""
    yield Layer((("encoder.embed_tokens.weight", VOCABULARY * WIDTH),))
    for number in range(LAYERS):
        name = f"encoder.layers.{number}"
        yield norm(f"{name}.maybe_ln1.ln", WIDTH)
        yield from heads(f"{name}.self_attn")
        yield norm(f"{name}.maybe_ln2.ln", WIDTH)
        yield from feed_forward(name)
    yield norm("encoder.layer_norm", WIDTH)
    for number in range(LAYERS):
        name = f"decoder.layers.{number}"
        for part in ("self_attn", "encoder_attn"):
            yield norm(f"{name}.{part}_layer_norm.ln", WIDTH)
            yield from heads(f"{name}.{part}")
        yield norm(f"{name}.final_layer_norm.ln", WIDTH)
        yield from feed_forward(name)
    yield norm("decoder.layer_norm", WIDTH)
    yield Layer((), VOCABULARY * WIDTH * TOKENS)  # the head, with the embedding's matrix


def heads(name: str) -> Iterator[Layer]:
    """Yield an attention: projections of queries, keys and values, products, and the projection out."""
    for part in "qkv":
        yield Layer(((f"{name}.in_proj_weight_{part}", WIDTH**2),), WIDTH**2 * TOKENS)
    yield attention(TOKENS, WIDTH)
    yield linear(f"{name}.out_proj", WIDTH, WIDTH, TOKENS, bias=False)


def feed_forward(name: str) -> Iterator[Layer]:
    """Yield the two linear layers behind an attention."""
    yield linear(f"{name}.fc1", WIDTH, INNER, TOKENS)
    yield linear(f"{name}.fc2", INNER, WIDTH, TOKENS)


LAYERS_IN_ORDER = tuple(transformer_big())


def registered(name: str) -> tuple[bool, int, int]:
    """Sort key: encoder before decoder, the last norm behind the layers, parts of a layer as listed."""
    parts = name.split(".")
    if parts[1] != "layers":
        return parts[0] == "decoder", -1 if parts[1] == "embed_tokens" else LAYERS, 0
    return parts[0] == "decoder", int(parts[2]), PARTS.index(parts[3])


MODEL = Model(
    name="transformer-big",
    title=f"Transformer-big, {BATCH_TOKENS // TOKENS} pairs of sentences of {TOKENS} tokens per rank",
    layers=LAYERS_IN_ORDER,
    dtype="float32",
    itemsize=4,
    batch=BATCH_TOKENS // TOKENS,
    samples_per_second=TOKENS_PER_SECOND / TOKENS,
    device=f"one NVIDIA A100 in TF32, {TOKENS_PER_SECOND} tokens/s",
    registration=tuple(sorted(names(LAYERS_IN_ORDER), key=registered)),
)
