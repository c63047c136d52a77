from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collectives.execution.call import Call

CALL = Call(3, "all_reduce", "ring", 1024, "float32", "sum")


@given(
    field=st.sampled_from(["sequence", "collective", "algorithm", "count", "dtype", "op", "root", "lane"]),
    value=st.integers(2000, 10**6),
)
def test_calls_that_differ_use_different_fingerprints(field: str, value: int) -> None:
    values = {"lane": (0, 1, value), "sequence": value, "count": value, "root": value}
    changed: Any = {field: values.get(field, f"x{value}")}

    assert replace(CALL, **changed).fingerprint() != CALL.fingerprint()
    assert replace(CALL).fingerprint() == CALL.fingerprint()
