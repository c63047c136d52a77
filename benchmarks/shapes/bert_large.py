"""BERT-large on one A100 in TF32.

Devlin et al., NAACL 2019: 24 layers of width 1024.  Parameters are those of ``BertModel`` of Hugging
Face's transformers for ``bert-large-uncased``, pooler included, heads of a task not.  The rate: phase 1
of pretraining (sequences of 128), NVIDIA's DeepLearningExamples, BERT for PyTorch, on one GPU of a
DGX A100, micro-batches of 128; the head of pretraining, which that rate includes, is taken to be free.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.shapes.model import Layer, Model, attention, linear, norm

SEQUENCE, WIDTH, INNER, LAYERS, VOCABULARY = 128, 1024, 4096, 24, 30522


def bert_large() -> Iterator[Layer]:
    """Yield the layers in order of registration, which is that of execution."""
    kinds = (("word", VOCABULARY), ("position", 512), ("token_type", 2))
    yield Layer(tuple((f"embeddings.{kind}_embeddings.weight", rows * WIDTH) for kind, rows in kinds))
    yield norm("embeddings.LayerNorm", WIDTH)
    for number in range(LAYERS):
        name = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield linear(f"{name}.attention.self.{part}", WIDTH, WIDTH, SEQUENCE)
        yield attention(SEQUENCE, WIDTH)
        yield linear(f"{name}.attention.output.dense", WIDTH, WIDTH, SEQUENCE)
        yield norm(f"{name}.attention.output.LayerNorm", WIDTH)
        yield linear(f"{name}.intermediate.dense", WIDTH, INNER, SEQUENCE)
        yield linear(f"{name}.output.dense", INNER, WIDTH, SEQUENCE)
        yield norm(f"{name}.output.LayerNorm", WIDTH)
    yield linear("pooler.dense", WIDTH, WIDTH, 1)


MODEL = Model(
    name="bert-large",
    title="BERT-large (BertModel, with pooler), 128 sequences of 128 tokens per rank",
    layers=tuple(bert_large()),
    dtype="float32",
    itemsize=4,
    batch=128,
    samples_per_second=317,
    device="one NVIDIA A100 in TF32, 317 sequences/s",
)
