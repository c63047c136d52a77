"""BERT-large on one A100 in TF32, and BERT-base on one GPU in float32.

Devlin et al., NAACL 2019: 24 layers of width 1024, and 12 of width 768.

BERT-large: parameters are those of ``BertModel`` of Hugging Face's transformers for
``bert-large-uncased``, pooler included, heads of a task not.  The rate: phase 1 of pretraining (sequences
of 128), NVIDIA's DeepLearningExamples, BERT for PyTorch, on one GPU of a DGX A100, micro-batches of 128;
the head of pretraining, which that rate includes, is taken to be free.

BERT-base: parameters are those of ``BertForPreTraining``, its vocabulary padded to a multiple of 8, the
decoder's matrix that of the embedding.  The rate: HKBU-HPML/ddl-benchmarks (horovod/bert_benchmark.py,
results/2020-05-29), 64 sentences of 64 tokens on one GPU, which the source does not name (of the class of
an RTX 2080 Ti).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.shapes.model import Layer, Model, attention, linear, names, norm


@dataclass(frozen=True)
class Bert:
    """Sizes of a BERT: layers, width, tokens of a sequence, rows of the embedding."""

    layers: int
    width: int
    sequence: int
    vocabulary: int


def encoder(bert: Bert, prefix: str = "") -> Iterator[Layer]:
    """Yield the layers of ``BertModel`` in order of registration, which is that of execution."""
    width, sequence = bert.width, bert.sequence
    kinds = (("word", bert.vocabulary), ("position", 512), ("token_type", 2))
    yield Layer(tuple((f"{prefix}embeddings.{kind}_embeddings.weight", rows * width) for kind, rows in kinds))
    yield norm(f"{prefix}embeddings.LayerNorm", width)
    for number in range(bert.layers):
        name = f"{prefix}encoder.layer.{number}"
        for part in ("query", "key", "value"):
            yield linear(f"{name}.attention.self.{part}", width, width, sequence)
        yield attention(sequence, width)
        yield linear(f"{name}.attention.output.dense", width, width, sequence)
        yield norm(f"{name}.attention.output.LayerNorm", width)
        yield linear(f"{name}.intermediate.dense", width, 4 * width, sequence)
        yield linear(f"{name}.output.dense", 4 * width, width, sequence)
        yield norm(f"{name}.output.LayerNorm", width)
    yield linear(f"{prefix}pooler.dense", width, width, 1)


def for_pretraining(bert: Bert) -> Iterator[Layer]:
    """Yield the layers of ``BertForPreTraining``: the encoder and the heads of its two tasks."""
    yield from encoder(bert, "bert.")
    yield linear("cls.predictions.transform.dense", bert.width, bert.width, bert.sequence)
    yield norm("cls.predictions.transform.LayerNorm", bert.width)
    decoder = bert.width * bert.vocabulary * bert.sequence
    yield Layer((("cls.predictions.bias", bert.vocabulary),), decoder)  # the matrix is the embedding's
    yield linear("cls.seq_relationship", bert.width, 2, 1)


BASE_LAYERS = tuple(for_pretraining(Bert(layers=12, width=768, sequence=64, vocabulary=30528)))


def registered(name: str) -> tuple[bool, bool, bool]:
    """Sort key: the heads register the decoder's bias before all else of them."""
    head = name.startswith("cls.")
    return head, head and name != "cls.predictions.bias", name.startswith("cls.seq_relationship")


LARGE = Model(
    name="bert-large",
    title="BERT-large (BertModel, with pooler), 128 sequences of 128 tokens per rank",
    layers=tuple(encoder(Bert(layers=24, width=1024, sequence=128, vocabulary=30522))),
    dtype="float32",
    itemsize=4,
    batch=128,
    samples_per_second=317,
    device="one NVIDIA A100 in TF32, 317 sequences/s",
)

BASE = Model(
    name="bert-base",
    title="BERT-base (BertForPreTraining), 64 sequences of 64 tokens per rank",
    layers=BASE_LAYERS,
    dtype="float32",
    itemsize=4,
    batch=64,
    samples_per_second=212.8,
    device="one GPU of the class of an RTX 2080 Ti in float32, 212.8 sequences/s",
    registration=tuple(sorted(names(BASE_LAYERS), key=registered)),
)
