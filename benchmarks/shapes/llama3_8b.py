"""Llama 3 8B on one H100 in bfloat16.

Grattafiori et al., 2024: 32 layers of width 4096, 8 heads of keys and values.  Parameters are those of
``LlamaForCausalLM`` of Hugging Face's transformers, in its order of registration.  Gradients are bfloat16,
as parameters in bfloat16 have them.  The rate: Llama 3.1 8B, sequences of 8192, local batch 2, FSDP on 8
GPUs, 5762 tokens/s each (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 1); that
is with selective checkpointing of activations and with FSDP's communication beside it.  Whether a replica
and its optimizer fit into a device's memory is not asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model, attention, linear, names, norm

SEQUENCE, WIDTH, INNER, KEYS, LAYERS, VOCABULARY = 8192, 4096, 14336, 1024, 32, 128256
TOKENS_PER_SECOND = 5762


def llama3_8b() -> Iterator[Layer]:
    """Yield the layers in order of execution."""
    yield Layer((("model.embed_tokens.weight", VOCABULARY * WIDTH),))
    for number in range(LAYERS):
        name = f"model.layers.{number}"
        yield norm(f"{name}.input_layernorm", WIDTH, bias=False)
        for part, outputs in (("q", WIDTH), ("k", KEYS), ("v", KEYS)):
            yield linear(f"{name}.self_attn.{part}_proj", WIDTH, outputs, SEQUENCE, bias=False)
        yield attention(SEQUENCE, WIDTH)
        yield linear(f"{name}.self_attn.o_proj", WIDTH, WIDTH, SEQUENCE, bias=False)
        yield norm(f"{name}.post_attention_layernorm", WIDTH, bias=False)
        for part in ("gate", "up"):
            yield linear(f"{name}.mlp.{part}_proj", WIDTH, INNER, SEQUENCE, bias=False)
        yield linear(f"{name}.mlp.down_proj", INNER, WIDTH, SEQUENCE, bias=False)
    yield norm("model.norm", WIDTH, bias=False)
    yield linear("lm_head", WIDTH, VOCABULARY, SEQUENCE, bias=False)


LAYERS_IN_ORDER = tuple(llama3_8b())


def registered(name: str) -> tuple[int, bool]:
    """Sort key: a layer registers its two normalizations after all else."""
    parts = name.split(".")
    if parts[1] == "layers":
        return int(parts[2]), "layernorm" in name
    return (-1 if parts[1] == "embed_tokens" else LAYERS), False


MODEL = Model(
    name="llama3-8b",
    title="Llama 3 8B (LlamaForCausalLM), 2 sequences of 8192 tokens per rank",
    layers=LAYERS_IN_ORDER,
    dtype="bfloat16",
    itemsize=2,
    batch=2,
    samples_per_second=TOKENS_PER_SECOND / SEQUENCE,
    device="one NVIDIA H100 96GB (500 W) in bfloat16, 5762 tokens/s",
    registration=tuple(sorted(names(LAYERS_IN_ORDER), key=registered)),
)
