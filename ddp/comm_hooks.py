"""Communication hooks: what is done with a bucket instead of averaging it.

A hook is a function ``hook(state, bucket) -> Future[Tensor]``, as torch's; those of
``torch.distributed.algorithms.ddp_comm_hooks`` run as they are.  It gets gradients that are not
divided by anything, and its future gives what replaces them.

A hook that raises, returns no future, or whose future holds no tensor or an error, is told by its
name, in the backward pass; torch 2.13 ends the process, or loses the error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch._C._distributed_c10d import BuiltinCommHookType
from torch._C._distributed_c10d import GradBucket as TorchGradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ddp.errors import CommHookError
from ddp.grad_bucket import GradBucket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.nn import Parameter

Hook: TypeAlias = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]

FUTURE = torch.futures.Future
TWICE = (
    "a communication hook is registered already, {registered}; register one only: wrap it, as torch's "
    "fp16_compress_wrapper does, or write one that calls both"
)


class HookedBucket(Protocol):
    """What a hook reduces."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The members."""

    @property
    def contents(self) -> torch.Tensor:
        """Their gradients."""

    def accept(self, reduced: torch.Tensor) -> None:
        """Take the result."""


class CommHook:
    """A hook with its state.

    Args:
        state: handed to the hook.
        hook: see the module's docstring.

    Raises:
        TypeError: it cannot be called with a state and a bucket.
        ValueError: it says that it takes or returns something else.
    """

    def __init__(self, state: object, hook: Hook) -> None:
        _check(hook)
        self.hook = hook
        self.name = getattr(hook, "__qualname__", repr(hook))
        self._state = state

    def start(self, index: int, is_last: bool, bucket: HookedBucket) -> HookWork:
        """Call the hook; the work that it has begun completes with its future."""
        grad_bucket = GradBucket(index, is_last, bucket.contents, bucket.parameters)
        future = self.hook(self._state, grad_bucket)
        if not isinstance(future, FUTURE | torch._C.Future):
            raise CommHookError(
                f"communication hook {self.name} returned {_describe(future)} for bucket {index}; it must "
                "return a torch.futures.Future of the tensor that replaces bucket.buffer()"
            )
        return HookWork(self.name, index, future, bucket)


class HookWork:
    """A hook's future; a `collectives.work.Work`."""

    def __init__(self, name: str, index: int, future: Any, bucket: HookedBucket) -> None:
        self._name = name
        self._index = index
        self._future = future
        self._bucket: HookedBucket | None = bucket
        self.completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return when the bucket holds the hook's result; raise an error that it holds."""
        if self._bucket is None:
            return
        result = self._future.wait()
        if isinstance(result, list | tuple) and len(result) == 1:
            (result,) = result
        contents = self._bucket.contents
        if not isinstance(result, torch.Tensor) or result.numel() != contents.numel():
            raise CommHookError(
                f"the future of the communication hook {self._name} holds {_describe(result)} for bucket "
                f"{self._index}; it must hold a tensor of {contents.numel()} elements, like bucket.buffer()"
            )
        self._bucket.accept(result)
        self._bucket = None

    def is_completed(self) -> bool:
        """Return whether the bucket holds the hook's result."""
        if self._bucket is not None and self._future.done():
            self.wait()
        return self._bucket is None


def builtin_hook(kind: Any) -> Hook:
    """Return the hook in Python that does what torch's built-in *kind* does in C++.

    Raises:
        ValueError: there is no such kind.
    """
    hooks: dict[Any, Hook] = {
        BuiltinCommHookType.ALLREDUCE: default_hooks.allreduce_hook,
        BuiltinCommHookType.FP16_COMPRESS: default_hooks.fp16_compress_hook,
    }
    if kind not in hooks:
        raise ValueError(
            f"no built-in communication hook is called {kind!r}; known are {', '.join(map(str, hooks))}"
        )
    return hooks[kind]


def _check(hook: object) -> None:
    if not callable(hook):
        raise TypeError(f"a communication hook must be callable, got {_describe(hook)}")
    try:
        signature = inspect.signature(hook, eval_str=True)
    except (ValueError, NameError):
        return
    try:
        bound = signature.bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"a communication hook is called with a state and a bucket; {hook!r} takes {signature}"
        ) from error
    bucket = signature.parameters[list(bound.arguments)[-1]]
    allowed = (inspect.Parameter.empty, GradBucket, TorchGradBucket, Any)
    if isinstance(bucket.annotation, type) and bucket.annotation not in allowed:
        raise ValueError(
            f"a communication hook takes a torch.distributed.GradBucket; {hook!r} takes {bucket.annotation}"
        )
    if isinstance(signature.return_annotation, type) and signature.return_annotation not in allowed:
        raise ValueError(
            "a communication hook returns a torch.futures.Future[torch.Tensor]; "
            f"{hook!r} returns {signature.return_annotation}"
        )


def _describe(thing: object) -> str:
    if isinstance(thing, torch.Tensor):
        return f"a tensor of {thing.numel()} elements"
    return "None" if thing is None else f"{thing!r}, a {type(thing).__name__}"
