"""Classes of sizes by which errors are reported, as protocols and bounds change with the size."""

from __future__ import annotations

CLASSES = ("below 64 KiB", "to 16 MiB", "to 1 GiB", "above")
_EDGES = (2**16, 2**24, 2**30)


def size_class(nbytes: int) -> str:
    """Return the class of *nbytes*; an edge belongs to the class above it."""
    return CLASSES[sum(nbytes >= edge for edge in _EDGES)]
