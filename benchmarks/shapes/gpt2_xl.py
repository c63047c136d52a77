"""GPT-2 XL on one H100 in bfloat16.

Radford et al., 2019: 48 layers of width 1600.  Parameters are those of ``GPT2LMHeadModel`` of Hugging
Face's transformers; the head shares the embedding's matrix, so that gradient is ready last.  Gradients
are float32, as autocast leaves them.  The rate is that of the nearest model published: MPT-1B with
sequences of 1024 on H100 80GB, 41.95 % of the peak in bfloat16, without activation checkpointing (MPT
Training Benchmarks of mosaicml/llm-foundry, 8 GPUs; their formula of model FLOPs is the one used here).
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model, attention, flops, linear, norm

SEQUENCE, WIDTH, LAYERS, VOCABULARY = 1024, 1600, 48, 50257
FLOPS_PER_SECOND = 415.1125e12


def gpt2_xl() -> Iterator[Layer]:
    """Yield the layers in order of registration, which is that of execution."""
    yield Layer(
        (("transformer.wte.weight", VOCABULARY * WIDTH), ("transformer.wpe.weight", SEQUENCE * WIDTH))
    )
    for number in range(LAYERS):
        name = f"transformer.h.{number}"
        yield norm(f"{name}.ln_1", WIDTH)
        yield linear(f"{name}.attn.c_attn", WIDTH, 3 * WIDTH, SEQUENCE)
        yield attention(SEQUENCE, WIDTH)
        yield linear(f"{name}.attn.c_proj", WIDTH, WIDTH, SEQUENCE)
        yield norm(f"{name}.ln_2", WIDTH)
        yield linear(f"{name}.mlp.c_fc", WIDTH, 4 * WIDTH, SEQUENCE)
        yield linear(f"{name}.mlp.c_proj", 4 * WIDTH, WIDTH, SEQUENCE)
    yield norm("transformer.ln_f", WIDTH)
    yield Layer((), VOCABULARY * WIDTH * SEQUENCE)  # the head, with the embedding's matrix


LAYERS_IN_ORDER = tuple(gpt2_xl())

MODEL = Model(
    name="gpt2-xl",
    title="GPT-2 XL (GPT2LMHeadModel, tied head), 8 sequences of 1024 tokens per rank",
    layers=LAYERS_IN_ORDER,
    dtype="float32",
    itemsize=4,
    batch=8,
    samples_per_second=FLOPS_PER_SECOND / sum(flops(LAYERS_IN_ORDER)),
    device="one NVIDIA H100 80GB in bfloat16 autocast, 41.95 % of its peak as published for MPT-1B",
)
