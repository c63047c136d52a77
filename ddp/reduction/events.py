"""The alphabet of the reducer: what it is told (events), and what it answers (commands)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BackwardBegan:
    """A backward pass whose gradients shall be reduced has begun."""


@dataclass(frozen=True, slots=True)
class GradReady:
    """The gradient of a parameter has its final local value."""

    parameter: int


@dataclass(frozen=True, slots=True)
class BucketFilled:
    """The gradients of a bucket have their final local values; for buckets that share no gradient."""

    bucket: int


@dataclass(frozen=True, slots=True)
class BackwardEnded:
    """No further gradient will become ready in this pass."""


@dataclass(frozen=True, slots=True)
class OptimizerStepped:
    """The user wants the parameters updated; only strategies that do so themselves are told."""


@dataclass(frozen=True, slots=True)
class BucketReduced:
    """The collective of a bucket that was in flight has completed."""

    bucket: int


@dataclass(frozen=True, slots=True)
class ParameterNeeded:
    """The next forward pass is about to use a parameter."""

    parameter: int


@dataclass(frozen=True, slots=True)
class EverythingNeeded:
    """Somebody is about to use all parameters."""


@dataclass(frozen=True, slots=True)
class LaunchBucket:
    """Start a collective on a bucket and go on; report `BucketReduced` when it is done."""

    bucket: int
    collective: str = "all_reduce"


@dataclass(frozen=True, slots=True)
class AwaitBucket:
    """Do not go on before the collective of this bucket has completed, and `BucketReduced` was reported."""

    bucket: int


@dataclass(frozen=True, slots=True)
class UpdateBucket:
    """Let the optimizer update what is in this bucket, now."""

    bucket: int


@dataclass(frozen=True, slots=True)
class FinishBackward:
    """Every bucket has arrived; unless parameters were updated: hand the gradients to the optimizer."""


Event: TypeAlias = (
    BackwardBegan
    | GradReady
    | BucketFilled
    | BackwardEnded
    | OptimizerStepped
    | BucketReduced
    | ParameterNeeded
    | EverythingNeeded
)
Command: TypeAlias = LaunchBucket | AwaitBucket | UpdateBucket | FinishBackward
