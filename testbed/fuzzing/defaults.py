"""Defaults of DDP, torch's and ours, in place of those that they ship with, where a script gives none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from testbed.fuzzing.draw import STRATEGIES, Draw


@contextmanager
def ddp_defaults(draw: Draw) -> Iterator[list[type]]:
    """Let modules that are wrapped meanwhile have the bucket cap, views and strategy of *draw*.

    Yields the classes of what wrapped any, one for each module.
    """
    import torch.nn.parallel

    import ddp

    given: dict[str, Any] = {}
    if draw.bucket_cap_mb is not None:
        given["bucket_cap_mb"] = draw.bucket_cap_mb
    if draw.bucket_views:
        given["gradient_as_bucket_view"] = True
    strategy = {} if draw.strategy is None else {"strategy": draw.strategy}
    wrapped: list[type] = []
    with (
        _defaults(torch.nn.parallel.DistributedDataParallel, given, wrapped),
        _defaults(ddp.DistributedDataParallel, given | strategy, wrapped),
    ):
        yield wrapped


@contextmanager
def _defaults(kind: Any, given: Mapping[str, Any], wrapped: list[type]) -> Iterator[None]:
    """Let arguments of *kind* that are not given be *given* meanwhile, and note in *wrapped* who is made."""
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        wrapped.append(kind)
        named = signature.bind_partial(self, *args, **kwargs).arguments
        own = {name: value for name, value in given.items() if name not in named}
        if named.get("strategy", STRATEGIES[0]) not in STRATEGIES:
            own.pop("gradient_as_bucket_view", None)  # such strategies keep gradients where they like
        original(self, *args, **own, **kwargs)

    kind.__init__ = init
    try:
        yield
    finally:
        kind.__init__ = original
