"""A profile: what a training step computes, and when each gradient becomes ready.

A profile is a small JSON file.  It is recorded from real iterations (`ddp.recording.recording`), derived from
a model's arithmetic (those in ``ddp/profiles/``), or written by hand:

    {"schema": 1, "name": "two layers", "source": "by hand", "device": "none",
     "forward_seconds": 0.001, "backward_seconds": 0.002,
     "gradients": [
        {"name": "a.weight", "numel": 1000, "dtype": "float32", "nbytes": 4000, "ready_seconds": 0.002},
        {"name": "b.weight", "numel": 1000, "dtype": "float32", "nbytes": 4000, "ready_seconds": 0.001}]}

Gradients are listed in the order in which the module registers its parameters.  Times count from
the beginning of the backward pass.  What the loss costs belongs to ``forward_seconds``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ddp.errors import ProfileError

_FOLDER = Path(__file__).resolve().parent
"""Not found by its name, which a script's own ``ddp.py`` may have while its ranks run."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PS_PER_SECOND = 10**12


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gradient(_Strict):
    """One parameter's gradient: its size, and when it is ready.

    Attributes:
        name: of the parameter, as ``named_parameters`` has it.
        numel: number of elements.
        dtype: for example ``float32``.
        nbytes: size in bytes.
        ready_seconds: since the backward pass began.
    """

    name: str
    numel: int = Field(ge=0)
    dtype: str
    nbytes: int = Field(ge=0)
    ready_seconds: Seconds

    @property
    def ready_ps(self) -> int:
        """When the gradient is ready, in picoseconds since the backward pass began."""
        return _to_ps(self.ready_seconds)


class Profile(_Strict):
    """The compute of one training step of one rank.

    Attributes:
        schema_version: of the file format (``schema`` in the file).
        name: of the model.
        source: how the numbers came about.
        device: on which they hold.
        forward_seconds: from the beginning of the step to that of the backward pass.
        backward_seconds: length of the backward pass.
        gradients: in the order in which the module registers its parameters.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str
    source: str
    device: str
    forward_seconds: Seconds
    backward_seconds: Seconds
    gradients: tuple[Gradient, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        names = [gradient.name for gradient in self.gradients]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"gradients: {repeated[0]} is listed more than once")
        last = max(self.gradients, key=lambda gradient: gradient.ready_seconds)
        if last.ready_seconds > self.backward_seconds:
            raise ValueError(
                f"gradients: {last.name} becomes ready after {last.ready_seconds} s, later than "
                f"backward_seconds, {self.backward_seconds}"
            )
        return self

    @property
    def compute_seconds(self) -> float:
        """What the step takes on one rank, without communication."""
        return self.compute_ps / PS_PER_SECOND

    @property
    def compute_ps(self) -> int:
        """What the step takes on one rank, without communication, in picoseconds."""
        return self.forward_ps + self.backward_ps

    @property
    def forward_ps(self) -> int:
        """Length of the forward pass in picoseconds."""
        return _to_ps(self.forward_seconds)

    @property
    def backward_ps(self) -> int:
        """Length of the backward pass in picoseconds."""
        return _to_ps(self.backward_seconds)

    @property
    def nbytes(self) -> int:
        """Size of all gradients in bytes."""
        return sum(gradient.nbytes for gradient in self.gradients)

    def ready_order(self) -> list[int]:
        """Return the indices of the gradients in the order in which they become ready.

        Of those ready at the same time the last registered comes first, as in a backward pass.
        """
        indices = reversed(range(len(self.gradients)))
        return sorted(indices, key=lambda index: self.gradients[index].ready_ps)

    def slowed(self, factor: Fraction) -> Profile:
        """Return this profile with all its times *factor* times as long."""
        if factor == 1:
            return self

        def longer(seconds: float) -> float:
            return float(factor * Fraction(seconds))

        gradients = tuple(
            own.model_copy(update={"ready_seconds": longer(own.ready_seconds)}) for own in self.gradients
        )
        return self.model_copy(
            update={
                "forward_seconds": longer(self.forward_seconds),
                "backward_seconds": longer(self.backward_seconds),
                "gradients": gradients,
            }
        )

    def compute_charges(self) -> Mapping[str, int]:
        """Return what each piece of the step costs, in picoseconds, for `sim.Cluster`.

        ``gradient:NAME`` is the time between the gradient that was ready before and this one;
        ``backward`` is what remains after the last gradient.
        """
        charges = {"forward": self.forward_ps}
        now = 0
        for index in self.ready_order():
            gradient = self.gradients[index]
            charges[f"gradient:{gradient.name}"] = gradient.ready_ps - now
            now = gradient.ready_ps
        charges["backward"] = self.backward_ps - now
        return charges

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile to *path* as JSON, a line per gradient.

        Raises:
            OSError: the file cannot be written.
        """
        fields = self.model_dump(by_alias=True, mode="json")
        gradients = ",\n  ".join(json.dumps(gradient) for gradient in fields.pop("gradients"))
        head = json.dumps(fields, indent=1).removesuffix("\n}")
        Path(path).write_text(f'{head},\n "gradients": [\n  {gradients}\n ]\n}}\n', encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """Read the profile at *path*.

        Raises:
            ProfileError: it is no profile; the message names the file and the field.
            OSError: the file cannot be read.
        """
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except ValidationError as error:
            raise ProfileError(f"{path}: {_first_problem(error)}") from None

    @classmethod
    def bundled(cls, name: str) -> Profile:
        """Return a profile that comes with this package; `bundled_profiles` lists them.

        Raises:
            ProfileError: there is none of that name.
        """
        if name not in bundled_profiles():
            raise ProfileError(f"no bundled profile {name!r}; there are: {', '.join(bundled_profiles())}")
        return cls.load(_FOLDER / f"{name}.json")

    @classmethod
    def uniform(cls, num_buckets: int, bucket_bytes: int, seconds_per_bucket: float) -> Profile:
        """Return a profile of *num_buckets* equal float32 gradients, ready at equal intervals.

        Raises:
            ProfileError: no buckets, a size that is no whole number of elements, or a time that is
                negative.
        """
        if num_buckets < 1 or bucket_bytes < 0 or bucket_bytes % 4 or not seconds_per_bucket >= 0:
            raise ProfileError(
                f"expected at least one bucket of whole 4-byte elements and a time that is not negative, got "
                f"{num_buckets} buckets of {bucket_bytes} bytes, {seconds_per_bucket} s each"
            )

        gradients = [
            Gradient(
                name=f"bucket{num_buckets - 1 - position}",
                numel=bucket_bytes // 4,
                dtype="float32",
                nbytes=bucket_bytes,
                ready_seconds=(num_buckets - position) * seconds_per_bucket,
            )
            for position in range(num_buckets)
        ]

        return cls(
            name=f"{num_buckets} equal buckets",
            source="Profile.uniform",
            device="none",
            forward_seconds=0.0,
            backward_seconds=num_buckets * seconds_per_bucket,
            gradients=tuple(gradients),
        )


def bundled_profiles() -> tuple[str, ...]:
    """Return the names of the profiles that come with this package."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))


def load_profile(name_or_path: str | PathLike[str]) -> Profile:
    """Return the bundled profile of that name, or else the one in that file.

    Raises:
        ProfileError: neither exists, or the file is no profile.
        OSError: the file cannot be read.
    """
    name = str(name_or_path)
    if name in bundled_profiles():
        return Profile.bundled(name)
    if not Path(name_or_path).exists():
        nearest = difflib.get_close_matches(name, bundled_profiles(), n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        known = ", ".join(bundled_profiles())
        raise ProfileError(f"no profile {name!r}: {hint}expected a file, or one of: {known}")
    return Profile.load(name_or_path)


def _to_ps(seconds: float) -> int:
    return round(seconds * PS_PER_SECOND)


def _first_problem(error: ValidationError) -> str:
    """Return the first problem as *field: what is wrong*."""
    problem = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in problem["loc"])
    given = f", got {problem['input']!r}" if isinstance(problem["input"], (str, int, float)) else ""
    message = problem["msg"].removeprefix("Value error, ")
    return f"{field}: {message}{given}" if field else f"{message}{given if len(given) < 80 else ''}"
