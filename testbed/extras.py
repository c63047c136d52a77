"""Extras: parts of the installation that not everybody needs, and how they are had."""

from __future__ import annotations

import importlib.util

TORCH = "real runs and scripts need torch"


def how_to_install(what: str, extra: str) -> str:
    """Return *what* is missing, and how the *extra* that brings it is installed."""
    return (
        f"{what}, which the extra {extra} brings: in a checkout of this project, pip install -e '.[{extra}]'"
    )


def is_installed(module: str) -> bool:
    """Return whether *module*, which an extra brings, is there to be imported."""
    return importlib.util.find_spec(module) is not None


def has_torch() -> bool:
    """Return whether torch is installed."""
    return is_installed("torch")
