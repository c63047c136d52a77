"""Profiles that tests of steps are given."""

from collections.abc import Sequence

from hypothesis import strategies as st

from ddp import Profile
from ddp.profiles import Gradient
from ddp.profiles.profile import ITEM_SIZES
from ddp.reduction.bucketing import MIB


def profile_of(nbytes: Sequence[int], ready_ms: Sequence[float], **fields) -> Profile:
    """Return gradients of so many bytes that become ready at these milliseconds.

    Args:
        nbytes: of each gradient.
        ready_ms: when it is ready.
        fields: ``dtypes`` or ``names`` of the gradients, ``forward_ms`` and ``backward_ms``.
    """
    dtypes = fields.get("dtypes") or ["float32"] * len(nbytes)
    names = fields.get("names") or [f"p{i}" for i in range(len(nbytes))]
    gradients = tuple(
        Gradient(name=name, numel=size // ITEM_SIZES[kind], dtype=kind, nbytes=size, ready_seconds=ms / 1000)
        for name, size, kind, ms in zip(names, nbytes, dtypes, ready_ms, strict=True)
    )
    return Profile(
        name="layers",
        source="test",
        device="none",
        forward_seconds=fields.get("forward_ms", 1) / 1000,
        backward_seconds=fields.get("backward_ms", max(ready_ms)) / 1000,
        gradients=gradients,
    )


@st.composite
def profiles(
    draw: st.DrawFn, unit: int = 8, most: int = 7, least: int = 0, kinds: Sequence[str] = ("float32",)
) -> Profile:
    """Draw up to *most* gradients of up to 4 MiB, each of *least* times *unit* bytes or a larger multiple."""
    sizes = draw(st.lists(st.integers(least, 4 * MIB // unit), min_size=1, max_size=most))
    ready_ms = [draw(st.integers(0, 40)) / 10 for _ in sizes]
    return profile_of(
        [unit * size for size in sizes],
        ready_ms,
        dtypes=[draw(st.sampled_from(kinds)) for _ in sizes],
        forward_ms=draw(st.integers(0, 20)) / 10,
        backward_ms=max(ready_ms) + draw(st.integers(0, 10)) / 10,
    )
