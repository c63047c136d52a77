"""Questions about a cluster: what is trained or communicated, on which networks, by how many ranks.

    schema = 1
    question = "Is 400 Gb/s worth it over 100?"   # in your words; optional
    ranks = [64, 256]
    train_tokens = 300e9                           # time and cost of so many; optional

    [[profile]]
    name = "gpt2-xl"                               # one that ships, or a file
    tokens_per_rank = 8192                         # in a step

    [[network]]
    name = "cluster.toml"                          # a preset or a file
    set = { nic_bandwidth = ["100Gbps", "400Gbps"] }
    price_per_gpu_hour = 2.5                       # yours; none is invented

Whatever is a list is an axis; the points are the product.  ``docs/plan-a-cluster.md`` has every field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AliasChoices, Field, ValidationError

from collectives.formats.json_document import read_bytes
from sim.files.fields import Count, Fields, Size, Words
from sim.files.named import parse
from sim.files.problems import problems
from sim.files.toml_lines import key_lines
from testbed.errors import UsageError

Scaling: TypeAlias = Literal["weak", "strong"]
Timing: TypeAlias = Literal["auto", "links", "library", "vendor"]
Transport: TypeAlias = Literal["auto", "ideal", "nccl", "gloo", "shm"]
Value: TypeAlias = str | int | float
Values: TypeAlias = Value | Annotated[list[Value], Field(min_length=1)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=1000)]
Positive: TypeAlias = Annotated[float, Field(gt=0, le=1e24, strict=False)]
DEFAULT = "default"
"""Of algorithms: what the cluster would do by itself."""


class ProfileTable(Fields):
    """A model of which a profile says what a rank computes."""

    name: Name
    tokens_per_rank: Positive | None = None


class ScriptTable(Fields):
    """A script that is run without data on each cluster; ``{tp}`` in its arguments stands for an axis."""

    file: Name
    arguments: Words = ""
    axes: dict[str, Annotated[list[Value], Field(min_length=1)]] = Field(default={})
    compute: Name
    tokens_per_rank: Positive | None = None


class CollectiveTable(Fields):
    """Collectives by themselves."""

    name: Name
    sizes: Annotated[list[Size], Field(min_length=1, max_length=1000)]
    algorithms: list[Name] = Field(default=[DEFAULT], min_length=1)


class NetworkTable(Fields):
    """A network, perhaps with other values of some fields."""

    name: Name
    label: Words = ""
    set_: dict[str, Values] = Field(default={}, alias="set")
    price_per_gpu_hour: Annotated[float, Field(ge=0, le=1e9, strict=False)] | None = None


class Question(Fields):
    """A question, as its file says it."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    question: Words = ""
    ranks: Annotated[list[Count], Field(min_length=1, max_length=1000)] | None = None
    scaling: list[Scaling] = Field(default=["weak"], min_length=1)
    strategies: list[Name] = Field(default=["wait_free"], min_length=1)
    bucket_caps_mb: list[Positive] = Field(default=[25.0], min_length=1)
    algorithms: list[Name] = Field(default=[DEFAULT], min_length=1)
    ideal: bool = False
    timing: Timing = "auto"
    transport: Transport = "auto"
    inefficiencies: list[Words] | None = Field(
        default=None, validation_alias=AliasChoices("inefficiencies", "losses")
    )
    device: Name | None = None
    train_tokens: Positive | None = None
    set_: dict[str, Values] = Field(default={}, alias="set")
    profiles: list[ProfileTable] = Field(default=[], alias="profile")
    scripts: list[ScriptTable] = Field(default=[], alias="script")
    collectives: list[CollectiveTable] = Field(default=[], alias="collective")
    networks: Annotated[list[NetworkTable], Field(min_length=1, max_length=1000)] = Field(alias="network")

    def in_words(self) -> str:
        """Return the question as its author put it, or what is asked."""
        if self.question:
            return self.question.strip()
        models = [*(own.name for own in self.profiles), *(own.file for own in self.scripts)]
        models += [f"{own.name}s" for own in self.collectives]
        networks = ", ".join(own.label or own.name for own in self.networks)
        ranks = f", {', '.join(map(str, self.ranks))} ranks" if self.ranks else ""
        return f"{', '.join(models)} on {networks}{ranks}: what does it take, and what limits it?"


def read_question(path: Path) -> Question:
    """Return the question in the TOML file at *path*; files that it names are beside it.

    Raises:
        UsageError: it is none; names the line and the field.
        OSError: it cannot be read.
    """
    try:
        text = read_bytes(path, UsageError).decode("utf-8").replace("\r\n", "\n")
    except ValueError as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    asked = question_of(parse(text, str(path), UsageError), str(path), text)
    return beside(asked, path.parent)


def question_of(content: dict[str, Any], file: str, text: str = "") -> Question:
    """Return the question that *content* asks; errors call it *file*, with lines of *text*.

    Raises:
        UsageError: it is none.
    """
    try:
        asked = Question.model_validate(content)
    except ValidationError as error:
        said = problems(error, key_lines(text), Question, "a question")
        raise UsageError(f"{file}: {said}") from None
    if not (asked.profiles or asked.scripts or asked.collectives):
        raise UsageError(
            f"{file}: nothing is asked of the networks; name a model with [[profile]] or --profile, a "
            "[[script]], or a [[collective]]"
        )
    return asked


def beside(asked: Question, folder: Path) -> Question:
    """Return the question with names of files that lie in *folder* made paths to them."""

    def found(name: str) -> str:
        own = folder / name
        return str(own) if not Path(name).is_absolute() and own.is_file() else name

    def moved(tables: list[Any], key: str) -> list[Any]:
        return [own.model_copy(update={key: found(getattr(own, key))}) for own in tables]

    return asked.model_copy(
        update={
            "profiles": moved(asked.profiles, "name"),
            "scripts": moved(asked.scripts, "file"),
            "networks": moved(asked.networks, "name"),
        }
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of questions."""
    return {"title": "Question", **Question.model_json_schema(by_alias=True)}
