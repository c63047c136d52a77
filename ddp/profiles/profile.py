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

A step takes at most a day for each pass, and its gradients at most 4 TiB: what is more overflows the times
that are reckoned from it.  A gradient's bytes are its elements times the size of their type.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from collectives.formats.json_document import problems, read_json_document
from collectives.formats.whole_file import write_whole
from ddp.errors import ProfileError

_FOLDER = Path(__file__).resolve().parent
"""Not found by its name, which a script's own ``ddp.py`` may have while its ranks run."""

MAX_SECONDS = 86_400
MAX_BYTES = 2**42
BROADCAST_BYTES = 250 * 2**20
"""Of a message of buffers."""


def _of_one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"expected text without control characters, got {ascii(text)[:100]}")
    return text


Text: TypeAlias = Annotated[str, Field(max_length=10_000), AfterValidator(_of_one_line)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Amount: TypeAlias = Annotated[int, Field(ge=0, le=MAX_BYTES)]
PS_PER_SECOND = 10**12

ITEM_SIZES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("bfloat16", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("complex32", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("complex64", "float64", "int64", "uint64"), 8),
    "complex128": 16,
}
"""Bytes of an element, by torch's names of types."""


def _itemsize(dtype: str) -> int:
    """Return the bytes of an element.

    Raises:
        ValueError: there is no such type.
    """
    if dtype in ITEM_SIZES:
        return ITEM_SIZES[dtype]
    nearest = difflib.get_close_matches(dtype[:100], ITEM_SIZES, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {', '.join(ITEM_SIZES)}"
    raise ValueError(f"unknown dtype {dtype[:100]!r}; {hint}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gradient(_Strict):
    """One parameter's gradient: its size, and when it is ready.

    Attributes:
        name: of the parameter, as ``named_parameters`` has it.
        numel: number of elements.
        dtype: for example ``float32``; one of `ITEM_SIZES`.
        nbytes: size in bytes, of all elements.
        ready_seconds: since the backward pass began.
    """

    name: Text
    numel: Amount
    dtype: str
    nbytes: Amount
    ready_seconds: Seconds

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        size = _itemsize(self.dtype)
        if self.nbytes != self.numel * size:
            raise ValueError(
                f"nbytes: expected {self.numel * size}, as {self.numel} elements of {self.dtype} have, "
                f"got {self.nbytes}"
            )
        return self

    @property
    def ready_ps(self) -> int:
        """When the gradient is ready, in picoseconds since the backward pass began."""
        return _to_ps(self.ready_seconds)


class Buffers(_Strict):
    """Buffers of a module that have one type, such as the running means of batch norms.

    Attributes:
        dtype: for example ``float32``; one of `ITEM_SIZES`.
        nbytes: size in bytes, of all of them.
    """

    dtype: str
    nbytes: Amount

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        size = _itemsize(self.dtype)
        if self.nbytes % size:
            raise ValueError(f"nbytes: expected whole elements of {self.dtype}, got {self.nbytes} bytes")
        return self

    @classmethod
    def by_type(cls, buffers: Iterable[tuple[str, int]]) -> tuple[Buffers, ...]:
        """Return what *buffers*, each with its type and its bytes, come to; empty ones are left out."""
        sizes: Counter[str] = Counter()
        for dtype, nbytes in buffers:
            sizes[dtype] += nbytes
        return tuple(cls(dtype=dtype, nbytes=nbytes) for dtype, nbytes in sizes.items() if nbytes)


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
        buffers: of the module, by type; torch's DDP broadcasts them before each forward pass.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Text
    source: Text
    device: Text
    forward_seconds: Seconds
    backward_seconds: Seconds
    gradients: tuple[Gradient, ...] = Field(min_length=1)
    buffers: tuple[Buffers, ...] = ()

    def __repr__(self) -> str:
        return f"Profile({self.name}, {len(self.gradients)} gradients, {self.nbytes} B)"

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        names: set[str] = set()
        for gradient in self.gradients:
            if gradient.name in names:
                raise ValueError(f"gradients: {gradient.name} is listed more than once")
            names.add(gradient.name)

        if self.nbytes > MAX_BYTES:
            raise ValueError(f"gradients: expected at most {MAX_BYTES} bytes in all, got {self.nbytes}")
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

    def broadcasts(self) -> list[int]:
        """Return the bytes of each message that brings the buffers of one rank to all.

        Source: ``broadcast_coalesced`` in ``torch/csrc/distributed/c10d/reducer.cpp`` and
        ``broadcast_bucket_size`` of torch's DDP: a message for each type, of about 250 MiB at most.
        """
        sizes = [own.nbytes for own in self.buffers]
        return [min(BROADCAST_BYTES, size - at) for size in sizes for at in range(0, size, BROADCAST_BYTES)]

    def ready_order(self) -> list[int]:
        """Return the indices of the gradients in the order in which they become ready.

        Of those ready at the same time the last registered comes first, as in a backward pass.
        """
        indices = reversed(range(len(self.gradients)))
        return sorted(indices, key=lambda index: self.gradients[index].ready_ps)

    def backward_pieces(self) -> tuple[list[int], list[int]]:
        """Return the gradients in the order in which they become ready, and the work of the backward pass.

        In picoseconds: that before the first gradient is ready, before the second and so on, and what is left
        behind the last.
        """
        order = self.ready_order()
        return order, _between([self.gradients[index].ready_ps for index in order], self.backward_ps)

    def forward_pieces(self) -> tuple[list[int], list[int]]:
        """Return the parameters in the order in which a forward pass needs them, and its work before each.

        No profile says that.  A forward pass is taken to mirror the backward pass: what becomes ready when a
        part x of the backward pass is left is needed when a part x of the forward pass is done.
        """
        forward, backward = self.forward_ps, self.backward_ps
        order = self.ready_order()[::-1]
        left = [backward - self.gradients[index].ready_ps for index in order]
        return order, _between([own * forward // backward if backward else 0 for own in left], forward)

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
        order, works = self.backward_pieces()
        names = [f"gradient:{self.gradients[index].name}" for index in order]
        return {"forward": self.forward_ps, **dict(zip([*names, "backward"], works, strict=True))}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the profile to *path* as JSON, a line per gradient and type of buffers, whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        fields = self.model_dump(by_alias=True, mode="json")
        lists = {key: fields.pop(key) for key in ("buffers", "gradients")}
        text = json.dumps(fields, indent=1).removesuffix("\n}")
        for key, items in lists.items():
            if items:
                lines = ",\n  ".join(map(json.dumps, items))
                text += f',\n "{key}": [\n  {lines}\n ]'
        write_whole(path, f"{text}\n}}\n")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """Read the profile at *path*.

        Raises:
            ProfileError: it is no profile; the message names the file and the field.
            OSError: the file cannot be read.
        """
        return read_json_document(path, cls, ProfileError, "a profile")

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
            ProfileError: no buckets, a size that is no whole number of elements, a time that is negative, or
                more than a profile may hold.
        """
        if num_buckets < 1 or bucket_bytes < 0 or bucket_bytes % 4 or not seconds_per_bucket >= 0:
            raise ProfileError(
                f"expected at least one bucket of whole 4-byte elements and a time that is not negative, got "
                f"{num_buckets} buckets of {bucket_bytes} bytes, {seconds_per_bucket} s each"
            )

        try:
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
        except ValidationError as error:
            raise ProfileError(f"{num_buckets} equal buckets: {problems(error)}") from None


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


def _between(times: Sequence[int], end: int) -> list[int]:
    """Return what lies between one of *times* and the next, from 0 to *end*."""
    return [after - before for before, after in pairwise([0, *times, end])]


def _to_ps(seconds: float) -> int:
    return round(seconds * PS_PER_SECOND)
