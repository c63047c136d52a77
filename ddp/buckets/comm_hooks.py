"""Communication hooks: what is done with a bucket instead of averaging it.

A hook is a function ``hook(state, bucket) -> Future[Tensor]``, as torch's; those of
``torch.distributed.algorithms.ddp_comm_hooks`` run as they are.  It gets gradients that are not
divided by anything, and its future gives what replaces them.

A hook that raises, returns no future, or whose future holds no tensor or an error, is told by its
name, in the backward pass; torch 2.13 ends the process, or loses the error.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch._C._distributed_c10d import BuiltinCommHookType
from torch._C._distributed_c10d import GradBucket as TorchGradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from ddp.buckets.grad_bucket import GradBucket
from ddp.errors import CommHookError

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
        name: for errors and logging data; by default the hook's own.
        in_turn: call it for a bucket only when its future for the one before has its value.

    Raises:
        TypeError: it cannot be called with a state and a bucket.
        ValueError: it says that it takes or returns something else.
    """

    def __init__(self, state: object, hook: Hook, name: str | None = None, in_turn: bool = False) -> None:
        _check(hook)
        self.hook = hook
        self.name = name or str(getattr(hook, "__qualname__", repr(hook)))
        self._state = state
        self._in_turn = in_turn
        self._latest: HookWork | None = None

    def start(self, index: int, is_last: bool, bucket: HookedBucket) -> HookWork:
        """Call the hook, or let it take its turn; the work completes with its future."""
        grad_bucket = GradBucket(index, is_last, bucket.contents, bucket.parameters)
        before = self._latest if self._in_turn else None
        work = HookWork(lambda: self._call(grad_bucket), self.name, index, bucket, before)
        if self._in_turn:
            self._latest = work
        work.begin_if_its_turn()
        return work

    def _call(self, bucket: GradBucket) -> Any:
        """Return the hook's future for *bucket*."""
        try:
            future = self.hook(self._state, bucket)
        except Exception as error:
            if str(error):
                raise
            raise CommHookError(
                f"communication hook {self.name} raised {type(error).__name__}, and does not say why, for "
                f"bucket {bucket.index()}; the line is in the traceback"
            ) from error
        if not isinstance(future, FUTURE | torch._C.Future):
            raise CommHookError(
                f"communication hook {self.name} returned {_describe(future)} for bucket {bucket.index()}; "
                "it must return a torch.futures.Future of the tensor that replaces bucket.buffer()"
            )
        return future


class HookWork:
    """A hook's future, once the hook has been called; a `collectives.execution.work.Work`."""

    def __init__(
        self, call: Callable[[], Any], name: str, index: int, bucket: HookedBucket, before: HookWork | None
    ) -> None:
        self._call = call
        self._name = name
        self._index = index
        self._before = before
        self._future: Any = None
        self._bucket: HookedBucket | None = bucket
        self._error: Exception | None = None
        self.completed_ps: int | None = None

    @property
    def is_out_of_the_way(self) -> bool:
        """Whether the hook has done what it does, well or badly."""
        return self._error is not None or (self._future is not None and bool(self._future.done()))

    def begin_if_its_turn(self) -> None:
        """Call the hook, unless that has been done, or the one before is under way."""
        if self._future is None and (self._before is None or self._before.is_out_of_the_way):
            self._begin()

    def wait(self, timeout: float | None = None) -> None:
        """Return when the bucket holds the hook's result; raise an error that it holds."""
        if self._error is not None:
            raise self._error
        if self._bucket is None:
            return
        if self._future is None:
            self._wait_for_its_turn()
            self._begin()
        try:
            self._take_result(self._bucket)
        except Exception as error:
            self._error = error
            raise
        self._bucket = None

    def is_completed(self) -> bool:
        """Return whether the bucket holds the hook's result."""
        if self._bucket is not None:
            self.begin_if_its_turn()
            if self.is_out_of_the_way:
                self.wait()
        return self._bucket is None

    def _wait_for_its_turn(self) -> None:
        if self._before is not None:
            with contextlib.suppress(Exception):
                self._before.wait()

    def _begin(self) -> None:
        self._before = None
        try:
            self._future = self._call()
        except Exception as error:
            self._error = error
            raise

    def _take_result(self, bucket: HookedBucket) -> None:
        result = self._future.wait()
        if isinstance(result, list | tuple) and len(result) == 1:
            (result,) = result
        contents = bucket.contents
        if not isinstance(result, torch.Tensor) or result.numel() != contents.numel():
            raise CommHookError(
                f"the future of the communication hook {self._name} holds {_describe(result)} for bucket "
                f"{self._index}; it must hold a tensor of {contents.numel()} elements, like bucket.buffer()"
            )
        bucket.accept(result)


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
