"""Mentions of CUDA devices in the user's code, by which a run tells whether a script may use them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

_SAYS_SO = ("cuda", "accelerator")


def mentions_cuda(text: str | None) -> bool:
    """Return whether *text* may have to do with CUDA devices; None where nobody knows it."""
    return text is None or any(word in text for word in _SAYS_SO)


def text_of_module(fn: Callable[..., Any]) -> str | None:
    """Return the text of the module in which *fn* was written; None where nobody knows it."""
    try:
        return inspect.getsource(sys.modules[getattr(fn, "func", fn).__module__])
    except (OSError, TypeError, AttributeError, KeyError):
        return None
