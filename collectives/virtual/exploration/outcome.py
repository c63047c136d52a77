"""Outcome of a run in one order: what must be the same in every order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from collectives.virtual.setting import VirtualRun


@dataclass(frozen=True)
class Outcome:
    """What a run has come to.

    Attributes:
        error: that ended it.
        told: what is compared, by what it is in words: results, what ranks print, final parameters.
        shown: of those that can be read, what they say.
        printed: by ranks, one after another.
        run: itself, if no error has ended it.
    """

    error: BaseException | None
    told: Mapping[str, object] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)
    printed: Sequence[str] = field(default=(), compare=False)
    run: VirtualRun | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        error: BaseException | None,
        run: VirtualRun | None,
        results: Sequence[Any],
        printed: Mapping[int, str],
        parameters: Mapping[tuple[Any, int, str], bytes],
    ) -> Outcome:
        """Return the outcome of a run.

        Args:
            error: that ended it, if one has.
            run: what has come of it, if none has.
            results: what a function returned, by rank.
            printed: what ranks printed.
            parameters: digests of the final parameters, by model, rank and name.
        """
        told: dict[str, object] = {}
        shown: dict[str, str] = {}
        for rank, result in enumerate(results):
            told[f"what rank {rank} returns"] = digest(result)
            shown[f"what rank {rank} returns"] = repr(result)
        for rank, text in sorted(printed.items()):
            told[f"what rank {rank} prints"] = text
            shown[f"what rank {rank} prints"] = repr(text)
        for (model, rank, name), held in sorted(parameters.items(), key=str):
            told[f"parameter {name} of {model[0]} on rank {rank}"] = held
        return cls(error, told, shown, [text for _, text in sorted(printed.items())], run)

    def difference(self, other: Outcome) -> str:
        """Return in words of what *other* differs from this, the first there is; nothing if it does not."""
        if other.error is not None or self.error is not None:
            return "" if other.error is self.error else "whether it fails"
        for what in (*self.told, *other.told):
            if self.told.get(what) != other.told.get(what):
                return what
        return ""


def digest(value: Any) -> object:
    """Return what is equal for values that are equal, bit for bit; of what has no value, its type."""
    match value:
        case torch.Tensor():
            plain = value.detach().cpu().contiguous().reshape(-1)
            held = (
                hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).digest() if plain.numel() else b""
            )
            return str(value.dtype), tuple(value.shape), held
        case list() | tuple():
            return type(value).__name__, tuple(digest(one) for one in value)
        case dict():
            return "dict", tuple((digest(key), digest(own)) for key, own in value.items())
        case None | bool() | int() | float() | complex() | str() | bytes():
            return type(value).__name__, repr(value)
        case _:
            return type(value).__name__
