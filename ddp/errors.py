"""Errors of `ddp`, which are RuntimeErrors, as torch's; where torch has words for one, they are in it.

DDPError
├── ReducerError          an event that the reducer cannot accept; holds the event history
│   └── UnfinishedReductionError   a backward pass that ended without some gradients
├── GraphChangedError     a graph that was said to be static is not
├── BucketingError        sizes, limits or an order that bucketing cannot accept
├── UnknownStrategyError  no overlap strategy has that name
├── UnknownInefficiencyError   no inefficiency of a training step has that name
├── ProfileError          a profile that cannot be read, or does not hold together
├── ModelMismatchError    the ranks wrapped different models
├── CommHookError         a communication hook did not do what hooks do
├── GradientError         a gradient is not finite, or not the same on all ranks
└── NotSupportedError     an option of torch's DDP that this version does not have
                          (also the NotSupportedError of `collectives`)
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives import errors


class DDPError(RuntimeError):
    """Base of all errors of this package."""


class ReducerError(DDPError):
    """The reducer was told of something that cannot happen now."""


class UnfinishedReductionError(ReducerError):
    """A backward pass has ended without some gradients.

    Args:
        message: what happened.
        parameters: indices of those whose gradients are missing.
    """

    def __init__(self, message: str, parameters: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.parameters = tuple(parameters)


class GraphChangedError(DDPError):
    """A parameter has got a gradient more often than ``static_graph`` allows."""


class BucketingError(DDPError, ValueError):
    """Bucketing was asked for something impossible."""


class UnknownStrategyError(DDPError, ValueError):
    """No overlap strategy has that name."""


class UnknownInefficiencyError(DDPError, ValueError):
    """No inefficiency of a training step has that name, or it has no such parameter."""


class ProfileError(DDPError, ValueError):
    """A profile cannot be read, or does not hold together."""


class ModelMismatchError(DDPError):
    """The ranks wrapped modules whose parameters or options differ."""


class CommHookError(DDPError, TypeError):
    """A communication hook returned something that cannot replace its bucket."""


class GradientError(DDPError):
    """A check of gradients that was asked for has failed; raised on every rank."""


class NotSupportedError(DDPError, errors.NotSupportedError):
    """An option that torch's DDP has and this version does not."""
