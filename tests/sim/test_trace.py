"""A trace is Chrome's format, exact and the same bytes each time."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.trace import Trace

SPANS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["compute", "communication", "data", "A"]),
        st.text(max_size=5),
        st.integers(-(10**6), 10**19),
        st.integers(0, 10**15),
    ),
    max_size=20,
)


def trace_of(spans) -> Trace:
    trace = Trace({"model": "test"})
    for rank, lane, name, start, duration in spans:
        trace.span(rank, lane, name, start, start + duration, bytes=duration)
    return trace


@given(SPANS)
def test_times_are_exact_decimals_of_microseconds(spans):
    events = json.loads(trace_of(spans).to_json(), parse_float=Decimal)["traceEvents"]

    written = [
        (e["pid"], e["cat"], e["name"], int(e["ts"] * 10**6), int(e["dur"] * 10**6))
        for e in events
        if e["ph"] == "X"
    ]
    assert sorted(written) == sorted(spans)


@given(SPANS, st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_of_recording(spans, random):
    shuffled = list(spans)
    random.shuffle(shuffled)

    assert trace_of(shuffled).to_json() == trace_of(spans).to_json()


def test_ranks_are_processes_and_lanes_their_threads_compute_first():
    trace = Trace()
    for lane in ("zebra", "communication", "apple", "compute"):
        trace.span(1, lane, "x", 0, 1)
    trace.span(0, "communication", "x", 0, 1)

    events = json.loads(trace.to_json())["traceEvents"]

    named = [(e["name"], e["pid"], e["args"]["name"]) for e in events if e["name"].endswith("_name")]
    assert named == [
        ("process_name", 0, "rank 0"),
        ("process_name", 1, "rank 1"),
        ("thread_name", 0, "communication"),
        ("thread_name", 1, "compute"),
        ("thread_name", 1, "communication"),
        ("thread_name", 1, "apple"),
        ("thread_name", 1, "zebra"),
    ]
    tid = {(e["pid"], e["args"]["name"]): e["tid"] for e in events if e["name"] == "thread_name"}
    assert tid[0, "communication"] == tid[1, "communication"]


def test_a_trace_looks_as_viewers_expect(tmp_path):
    trace = Trace({"network": "switch-100g"})
    trace.span(0, "compute", "forward", 1_000_001, 3_000_000, bytes=np.int64(5), why="α")
    trace.instant(0, "compute", "step", 2_000_000)

    trace.save(tmp_path / "trace.json")

    content = json.loads((tmp_path / "trace.json").read_bytes())
    assert content["otherData"] == {"schema": 1, "network": "switch-100g"}
    assert content["traceEvents"][-2:] == [
        {
            "name": "forward", "cat": "compute", "ph": "X", "ts": 1.000001, "dur": 1.999999,
            "pid": 0, "tid": 0, "args": {"bytes": 5, "why": "α"},
        },
        {"name": "step", "cat": "compute", "ph": "i", "s": "t", "ts": 2.0, "pid": 0, "tid": 0, "args": {}},
    ]  # fmt: skip


def test_traces_of_several_processes_are_put_together():
    whole, parts = Trace(), [Trace(), Trace()]
    for rank, part in enumerate(parts):
        part.span(rank, "compute", "forward", 0, 5)
        whole.span(rank, "compute", "forward", 0, 5)

    together = pickle.loads(pickle.dumps(parts[1]))
    together.extend(parts[0].spans)

    assert together.to_json() == whole.to_json()


def test_an_empty_trace_is_a_trace():
    assert json.loads(Trace().to_json())["traceEvents"] == []


def test_a_span_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match="span 'x' of rank 3 ends at 4 ps, but begins at 5 ps"):
        Trace().span(3, "compute", "x", 5, 4)
