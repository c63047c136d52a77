"""The trace of an observed run: nothing is missing, spans fit viewers, and bytes repeat everywhere."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias
from unittest import mock

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from collectives import NotSupportedError, Run, simulate
from collectives.algorithms import ALGORITHMS
from sim import Jitter, Network, Topology
from tests.given import switch
from tests.sim.networks import networks

Events: TypeAlias = list[dict[str, Any]]


def events_of(run: Run) -> Events:
    return json.loads(run.trace.to_json(), parse_float=Decimal)["traceEvents"]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    topology = draw(networks(max_ranks=12))
    jitter = draw(st.sampled_from([[], [Jitter("1us")], [Jitter("1ns", "exponential", 3)]]))
    chosen = draw(st.sampled_from(ALGORITHMS))
    nbytes = draw(st.integers(0, 10**5)) * topology.num_ranks
    pace = {
        "overhead": draw(st.sampled_from([0, "1us"])),
        "reduction_bandwidth": draw(st.sampled_from([None, 10**9])),
    }
    try:
        return simulate(chosen, nbytes=nbytes, topology=topology, observe=True, conditions=jitter, **pace)
    except NotSupportedError:
        reject()


def every_message_is_drawn_on_both_sides_with_an_arrow_between(run: Run, events: Events) -> None:
    for track, total in (("send", "to"), ("receive", "from")):
        messages = [e for e in events if e["ph"] == "X" and e["cat"].startswith(track)]
        told = [m for e in events if e["name"].startswith("step ") for m in e["args"][f"{track}s"]]
        assert sum(e["args"]["bytes"] for e in messages) == sum(m["bytes"] for m in told)
        assert len(messages) == len(told)
        assert all(total in m for m in told)
    sent = [e for e in events if e["cat" if "cat" in e else "ph"].startswith("send")]
    over = defaultdict(int)
    for event in sent:
        for name in event["args"]["links"]:
            over[name] += event["args"]["bytes"]
    names = [use.name for use in run.links]
    assert len(set(names)) == len(names)
    assert over == {use.name: use.nbytes for use in run.links if use.nbytes}

    begins = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    tails, heads = ([e for e in events if e["ph"] == kind] for kind in "sf")
    assert [e["id"] for e in tails] == [e["id"] for e in heads] == list(range(len(sent)))
    assert all((e["pid"], e["tid"], e["ts"]) in begins for e in (*tails, *heads))


def spans_of_a_lane_follow_each_other_or_lie_in_each_other(run: Run, events: Events) -> None:
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"], event["cat"] == "steps"].append(event)

    for (_, _, steps), spans in tracks.items():
        for old, new in pairwise(spans):
            inside = new["ts"] + new["dur"] <= old["ts"] + old["dur"]
            assert old["ts"] <= new["ts"]
            assert new["ts"] >= old["ts"] + old["dur"] or (steps and inside)


def phases_are_all_of_their_step_and_the_last_ends_the_run(run: Run, events: Events) -> None:
    steps = [e for e in events if e.get("cat") == "steps"]
    whole = sum(e["dur"] for e in steps if e["name"].startswith("step "))

    assert sum(e["dur"] for e in steps) == 2 * whole
    ends = [e["ts"] + e["dur"] for e in steps]
    assert max(ends, default=Decimal(0)) * 10**6 <= run.time_ps


def counters_say_how_full_links_are(run: Run, events: Events) -> None:
    seconds = defaultdict(Decimal)
    for old, new in pairwise(e for e in events if e["ph"] == "C"):
        if old["name"] == new["name"]:
            assert 0 <= old["args"]["%"] <= 100
            seconds[old["name"]] += old["args"]["%"] / 100 * (new["ts"] - old["ts"])

    for use in run.links:
        expected = use.nbytes / use.bandwidth * 1e6
        rounding = run.seconds * 1e6 * 1e-8 + 1e-3
        assert float(seconds[use.name]) == pytest.approx(expected, rel=1e-9, abs=rounding)


@given(runs())
def test_a_trace_is_whole_its_spans_fit_and_its_bytes_are_those_of_links(run):
    events = events_of(run)

    every_message_is_drawn_on_both_sides_with_an_arrow_between(run, events)
    spans_of_a_lane_follow_each_other_or_lie_in_each_other(run, events)
    phases_are_all_of_their_step_and_the_last_ends_the_run(run, events)
    counters_say_how_full_links_are(run, events)


def test_a_ring_step_says_for_whom_it_waits():
    run = simulate(
        "ring", nbytes=4 * 10**6, topology=switch(4), observe=True, conditions=[Jitter("50us", seed=1)]
    )

    waits = {e["name"] for e in events_of(run) if e["name"].startswith("wait")}
    (first,) = [e for e in events_of(run) if e["pid"] == 2 and e["name"] == "step 0"]

    assert waits == {f"wait for rank {rank}" for rank in range(4)}
    assert first["args"]["sends"] == [{"bytes": 10**6, "to": 3}]
    assert first["args"]["receives"] == [{"bytes": 10**6, "from": 1}]


@pytest.mark.parametrize(
    ("algorithm", "collective", "lanes"),
    [
        ("direct", "all_to_all", ["send", "send 2", "send 3", "receive", "receive 2", "receive 3"]),
        ("ring", "all_reduce", ["send", "receive"]),
    ],
    ids=["at once", "one after another"],
)
def test_only_messages_at_once_have_lanes_of_their_own(algorithm, collective, lanes):
    run = simulate(algorithm, nbytes=16, topology=switch(4), collective=collective, observe=True)

    tracks = [e["args"]["name"] for e in events_of(run) if e["name"] == "thread_name" and e["pid"] == 0]

    assert tracks == ["steps", *lanes]


SCRIPT = """
import hashlib
from collectives import simulate
from sim import Jitter, Topology
topology = Topology.leaf_spine(num_ranks=12, hosts_per_leaf=4, bandwidth="100Gbps", uplink_bandwidth="40Gbps",
                               latency="2us", num_spines=2, routing="ecmp", seed=3)
run = simulate("swing", nbytes=99991, topology=topology, observe=True, conditions=[Jitter("1us", seed=5)])
print(hashlib.sha256(run.trace.to_json().encode()).hexdigest())
"""


@pytest.mark.costly
def test_the_same_seed_gives_the_same_bytes_in_every_process():
    printed = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(printed) == 1


HOST = Topology.host(num_ranks=12, bandwidth=1, memory_bandwidth=1, latency=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "makespan"}, "messages are seen by engine='events' and 'ranks' alone"),
        ({"model": "nccl"}, "messages are seen by engine='events' and 'ranks' alone"),
        ({"algorithm": "nvls"}, "messages are seen by engine='events' and 'ranks' alone"),
        ({"nbytes": 2**20, "topology": switch(256)}, "ring on 256 ranks sends 130560, and at most 50000"),
    ],
)
def test_what_cannot_be_observed_is_refused_before_a_message_is_sent(options, said):
    asked = {"algorithm": "ring", "nbytes": 8, "topology": switch(4), "observe": True, **options}

    with (
        mock.patch.object(Network, "transfer", side_effect=AssertionError),
        pytest.raises(NotSupportedError, match=said),
    ):
        simulate(**asked)


def test_a_trace_is_refused_where_nothing_was_observed_or_it_would_take_too_long():
    asked = {"nbytes": 419_256, "topology": HOST, "engine": "events"}

    run = simulate("naive", **asked)

    assert run.time_ps > 2**63
    with pytest.raises(NotSupportedError, match="simulate with observe=True"):
        _ = run.trace
    with pytest.raises(NotSupportedError, match=r"53 days.*; expected a faster network"):
        simulate("naive", **asked, observe=True)
