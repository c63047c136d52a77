"""A trace is Chrome's format, exact and the same bytes each time."""

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
    for rank, track, name, start, duration in spans:
        trace.span(rank, track, name, start, start + duration, bytes=duration)
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


def test_ranks_are_processes_and_lanes_their_threads_compute_first():
    trace = Trace()
    for track in ("zebra", "communication", "apple", "compute"):
        trace.span(1, track, "x", 0, 1)
    trace.span(0, "communication", "x", 0, 1)

    events = json.loads(trace.to_json())["traceEvents"]

    named = [(e["name"], e["pid"], e["args"]["name"]) for e in events if e["name"].endswith("_name")]
    assert named == [
        ("process_name", 0, "rank 0"), ("process_name", 1, "rank 1"), ("thread_name", 0, "communication"),
        ("thread_name", 1, "compute"), ("thread_name", 1, "communication"), ("thread_name", 1, "apple"),
        ("thread_name", 1, "zebra"),
    ]  # fmt: skip
    tid = {(e["pid"], e["args"]["name"]): e["tid"] for e in events if e["name"] == "thread_name"}
    assert tid[0, "communication"] == tid[1, "communication"]


def test_a_trace_looks_as_viewers_expect(tmp_path):
    trace = Trace({"network": "switch-100g"})
    trace.span(0, "compute", "forward", 1_000_001, 3_000_000, bytes=np.int64(5), why="α")
    trace.instant(0, "compute", "step", 2_000_000)
    trace.unfinished(0, "compute", "wait", 3_000_000)

    trace.save(tmp_path / "trace.json")

    content = json.loads((tmp_path / "trace.json").read_bytes())
    assert content["otherData"] == {"schema": 1, "network": "switch-100g"}
    assert content["traceEvents"][-3:] == [
        {
            "name": "forward", "cat": "compute", "ph": "X", "ts": 1.000001, "dur": 1.999999,
            "pid": 0, "tid": 0, "args": {"bytes": 5, "why": "α"},
        },
        {"name": "step", "cat": "compute", "ph": "i", "s": "t", "ts": 2.0, "pid": 0, "tid": 0, "args": {}},
        {"name": "wait", "cat": "compute", "ph": "B", "ts": 3.0, "pid": 0, "tid": 0, "args": {}},
    ]  # fmt: skip


def test_a_span_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match="span 'x' of rank 3 ends at 4 ps, but begins at 5 ps"):
        Trace().span(3, "compute", "x", 5, 4)


@given(SPANS, st.randoms(use_true_random=False))
def test_spans_counters_and_arrows_come_in_one_order_however_they_were_recorded(spans, random):
    traces = []
    for shuffled, order in (
        (spans, range(8)),
        (random.sample(spans, len(spans)), random.sample(range(8), 8)),
    ):
        trace = trace_of(shuffled)
        for number in order:
            trace.counter("links", f"link {number}", number % 2, "%", 10**6 * number + 1)
            trace.arrow(number, (0, "A"), (1, "A"), 5)
        trace.span(0, "A", "x", 5, 6)
        trace.span(1, "A", "x", 5, 6)
        traces.append(trace.to_json())
    together = Trace({"model": "test"})
    for other in (pickle.loads(pickle.dumps(trace_of([span]))) for span in spans):  # of other processes
        together.extend(other.spans)

    assert together.to_json() == trace_of(spans).to_json()

    assert traces[0] == traces[1]
    counts = [e for e in json.loads(traces[0], parse_float=Decimal)["traceEvents"] if e["ph"] == "C"]
    assert [e["name"] for e in counts] == [f"link {number}" for number in range(8)]
    assert [e["args"]["%"] for e in counts] == [number + Decimal("0.000001") for number in range(8)]
