"""Texts of installed packages: whether what they do with ranks may stay in their globals.

A package may keep ranks if a file of it makes process groups or device meshes, or if one that asks for ranks
keeps results of functions or rebinds its globals.  Its text alone is read, none of it is executed; what it
keeps in other ways is not seen.  One that keeps nothing of a rank is copied for nothing.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

KNOW_NO_RANKS = frozenset((
    "_pytest", "bokeh", "click", "dask", "distributed", "huggingface_hub", "hypothesis", "jinja2",
    "matplotlib", "mpmath", "narwhals", "networkx", "pandas", "PIL", "pydantic", "pygments", "pytest", "rich",
    "scipy", "simpy", "sklearn", "sympy", "toolz", "tornado", "typer", "yaml", "z3",
))  # fmt: skip
"""Packages of numbers, tables, plots and tests, in which most of the time of a short run would be spent."""

_MAKES_GROUPS = re.compile(rb"\b(new_group|new_subgroups\w*|init_device_mesh|DeviceMesh)\(")
_ASKS_FOR_RANKS = re.compile(rb"torch\.distributed|\bget_rank\(|\bget_world_size\(|[\"'](LOCAL_)?RANK[\"']")
_KEEPS = re.compile(rb"^\s*@(functools\.)?(lru_)?cache\b|^\s+global \w", re.MULTILINE)


@cache
def may_keep_ranks(place: Path) -> bool:
    """Return whether the text of the package in the folder *place*, or of the module, says that it may."""
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return any(path.suffix == ".py" and _may_keep(path.read_bytes()) for path in paths)


def _may_keep(text: bytes) -> bool:
    return bool(_MAKES_GROUPS.search(text) or (_ASKS_FOR_RANKS.search(text) and _KEEPS.search(text)))
