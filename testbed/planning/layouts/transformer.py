"""Transformers in files: layers, widths, heads, experts and the vocabulary.

    schema = 1
    description = "Llama 3, 70 billion parameters"
    source = "where the numbers are from"    # optional

    [model]
    layers = 80
    hidden = 8192                            # width of a token
    heads = 64                               # of queries
    kv_heads = 8                             # of keys and of values; by default as many
    ffn = 28672                              # width between the feed-forward layer's products
    vocabulary = 128256
    gated = true                             # optional: two products before (SwiGLU), not one
    tied = false                             # optional: the embedding is the head's matrix
    experts = 8                              # optional: feed-forward layers, of which each token
    experts_per_token = 2                    # takes some; ffn is the width of one

The files in ``sim/models`` are known by their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from sim.files.fields import Count, Fields, Words
from sim.files.named import names_in, parse, read
from sim.files.problems import problems
from sim.files.toml_lines import key_lines
from testbed.errors import UsageError

FOLDER = "models"
"""Of `sim`, where files of models ship."""


@dataclass(frozen=True)
class Transformer:
    """A decoder of equal layers.

    Attributes:
        layers: of the model.
        hidden: width of a token.
        heads: of queries.
        kv_heads: of keys and of values.
        ffn: width between the products of a feed-forward layer, or of one expert.
        vocabulary: tokens that there are.
        tied: the embedding is the head's matrix.
        gated: two products lead into a feed-forward layer, not one.
        experts: feed-forward layers beside each other; 0: there is one, which all tokens take.
        experts_per_token: of them that a token takes.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    tied: bool = False
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0

    @property
    def kv_width(self) -> int:
        """Width of keys, and of values."""
        return self.hidden * self.kv_heads // self.heads

    @property
    def ffn_params(self) -> int:
        """Parameters of a feed-forward layer, or of one expert."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_params(self) -> int:
        """Parameters of a layer, experts left out."""
        products = 2 * self.hidden * (self.hidden + self.kv_width)
        router = self.hidden * self.experts
        return products + (router if self.experts else self.ffn_params) + 2 * self.hidden

    @property
    def expert_params(self) -> int:
        """Parameters of all experts of a layer."""
        return self.experts * self.ffn_params

    @property
    def params(self) -> int:
        """All parameters, final norm left out."""
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (self.layer_params + self.expert_params) + ends

    def flops_per_token(self, seq: int) -> int:
        """Return operations of both passes for a token: products alone, attention to all *seq* tokens."""
        taken = self.experts_per_token * self.ffn_params if self.experts else 0
        products = self.layer_params - 2 * self.hidden + taken
        return 6 * (self.layers * (products + 2 * seq * self.hidden) + self.vocabulary * self.hidden)


class _ModelTable(Fields):
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    ffn: Count
    vocabulary: Count
    tied: bool = False
    gated: bool = True
    experts: int = Field(default=0, ge=0)
    experts_per_token: int = Field(default=0, ge=0)


class ModelFile(Fields):
    """A model, as its file says it."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    description: Words = ""
    source: Words = ""
    model: _ModelTable


def model_names() -> tuple[str, ...]:
    """Return the names of the models that ship."""
    return names_in(FOLDER)


def read_model(name_or_path: str | PathLike[str]) -> tuple[str, Transformer]:
    """Return name and model of the file at that path, or that ships by that name, ``.toml`` behind it or not.

    Raises:
        UsageError: there is none, or it is not a correct description; names the line and the field.
    """
    path = Path(name_or_path)
    shipped = path.name.removesuffix(".toml")
    if path.name == str(path) and shipped in model_names() and not path.exists():
        name_or_path = shipped
    text, name, file = read(name_or_path, FOLDER, "model", UsageError)
    content = parse(text, file, UsageError)
    if "model" not in content:
        raise UsageError(
            f"{file}: expected a table [model] with layers, hidden, heads, ffn and vocabulary; models that "
            f"ship: {', '.join(model_names())}"
        )
    return name, _model_of(content, file, text)


def _model_of(content: dict[str, Any], file: str, text: str) -> Transformer:
    try:
        table = ModelFile.model_validate(content).model
    except ValidationError as error:
        raise UsageError(f"{file}: {problems(error, key_lines(text), ModelFile, 'a model')}") from None
    kv_heads = table.kv_heads or table.heads
    wrong = {
        f"hidden = {table.hidden}: expected a multiple of heads = {table.heads}": table.hidden % table.heads,
        f"kv_heads = {kv_heads}: expected a divisor of heads = {table.heads}": table.heads % kv_heads,
        f"experts_per_token = {table.experts_per_token}: expected 1 to experts = {table.experts}, or 0": (
            not table.experts >= table.experts_per_token >= min(1, table.experts)
        ),
    }
    if said := next((words for words, is_wrong in wrong.items() if is_wrong), None):
        raise UsageError(f"{file}: {said}")
    return Transformer(**{**table.model_dump(), "kv_heads": kv_heads})
