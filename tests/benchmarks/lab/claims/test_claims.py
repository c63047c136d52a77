"""Claims: verdicts follow from cases, and figures are known in advance."""

import json
from itertools import product
from pathlib import Path

import pytest

from benchmarks.lab.claims import memory, overlap, pipeline, scaling
from benchmarks.lab.claims.__main__ import EXAMPLES, claims
from benchmarks.lab.claims.catalogue import TRIALS
from benchmarks.lab.claims.claim import Case, Claim, Finding, conditions
from benchmarks.lab.claims.memory import fsdp_bytes, zero_bytes
from benchmarks.lab.claims.page import page
from benchmarks.lab.claims.setups import ETHERNET_10, NVLINK, RESNET, Training, step
from benchmarks.lab.document import markdown
from benchmarks.lab.program import program
from ddp import load_profile, simulate_step
from sim import Topology
from tests.commands import called

PROGRAM = program(claims, EXAMPLES)
WHERE = ("on NVLink", "on InfiniBand", "on Ethernet")
MODELS = ("with a small model", "with a large model")


ALL = {(place, model) for place in WHERE for model in MODELS}
NVLINK_OR_SMALL = {*((WHERE[0], model) for model in MODELS), ("on Ethernet", "with a small model")}


def finding(holding):
    """Return what was found of a claim that holds at some of all places and models."""
    cases = [
        Case({"network": place, "model": model}, "50 %", (place, model) in holding, {"efficiency": 0.5})
        for place in WHERE
        for model in MODELS
    ]
    return Finding(Claim("C0", "It scales."), "two models", "simulated", "at least 50 %", tuple(cases))


@pytest.mark.parametrize(
    ("holding", "verdict"),
    [
        (ALL, "holds"),
        (set(), "does not hold"),
        ({(place, MODELS[0]) for place in WHERE}, "holds only if run with a small model"),
        (
            {(place, model) for place in WHERE[:2] for model in MODELS},
            "holds only if run on NVLink or InfiniBand",
        ),
        (NVLINK_OR_SMALL, "holds only if run on NVLink, or on Ethernet with a small model"),
    ],
)
def test_a_claim_holds_under_the_shortest_condition_that_tells_its_cases_apart(holding, verdict):
    assert finding(holding).verdict == verdict


def test_conditions_of_conditions_stand_in_parentheses():
    holding = {("NVLink", "a", 8), ("NVLink", "a", 64), ("NVLink", "b", 8), ("Ethernet", "b", 64)}
    cases = [
        Case({"network": f"on {own[0]}", "model": f"with {own[1]}", "ranks": f"on {own[2]} ranks"}, "",
             own in holding, {})
        for own in product(("NVLink", "Ethernet"), "ab", (8, 64))
    ]  # fmt: skip

    assert conditions(cases) == "on NVLink (with a, or with b on 8 ranks), or on Ethernet with b on 64 ranks"


QUICK = {"C8": overlap.accumulation, "C11": scaling.data_parallel, "C13": memory.memory}


@pytest.fixture(scope="module")
def findings():
    """Return the findings that take no more than a second or two."""
    return {name: trial() for name, trial in QUICK.items()}


def test_the_page_in_the_documents_says_what_is_found(findings):
    """If this fails: make claims."""
    shipped = (Path(__file__).parents[4] / "docs" / "claims.md").read_text(encoding="utf-8")

    for name in ("C8", "C13"):
        _, _, section = markdown(list(page([findings[name].row()], {}))).partition(f"## {name}\n")
        assert section in shipped
    assert list(TRIALS) == [f"C{number}" for number in range(1, 15)]
    assert all(f"[{name}](#{name.lower()})" in shipped for name in TRIALS)


def test_accumulation_divides_the_number_of_calls(findings):
    assert findings["C8"].verdict == "holds"
    for case in findings["C8"].cases:
        assert case.values["calls_every_pass"] == overlap.PASSES * int(case.values["calls_accumulated"])


@pytest.mark.parametrize("wanted", overlap.SHARES)
def test_the_network_is_given_the_rate_at_which_communication_is_the_stated_share(wanted):
    rate = overlap._rate_for(RESNET, wanted)
    topology = Topology.switch(num_ranks=overlap.SHARE_RANKS, bandwidth=rate, latency=overlap.SHARE_LATENCY)

    run = simulate_step(load_profile("resnet50"), topology=topology, strategy="after_backward")

    assert run.exposed_seconds / run.seconds == pytest.approx(float(wanted), abs=1e-6)


def test_a_divided_batch_takes_a_divided_time_and_half_precision_half_the_bytes():
    whole, divided, halved = (
        Training(RESNET, NVLINK, **own).profile() for own in ({}, {"divided": 8}, {"half": True})
    )

    assert divided.compute_ps == pytest.approx(whole.compute_ps / 8, abs=2)
    assert (divided.nbytes, halved.compute_ps) == (whole.nbytes, whole.compute_ps)
    assert 2 * halved.nbytes == whole.nbytes
    slow, fast = (step(Training(RESNET, ETHERNET_10, half=own)).seconds for own in (False, True))
    assert fast < slow


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_the_bubble_of_a_schedule_is_that_of_the_closed_form(schedule):
    bubble = pipeline._bubble(schedule, pipeline.STAGES)

    assert bubble == pytest.approx(3 / 7, abs=1e-3)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_the_stages_of_zero_leave_what_the_paper_says(stage, gigabytes):
    """Figure 1: 7.5 billion parameters on 64 GPUs."""
    assert zero_bytes(7_500_000_000, 64, stage) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_fsdp_keeps_two_units_and_the_rest_gathered():
    sharded = 16 * 70 / 2

    assert fsdp_bytes([10, 20, 30], 10, 2) == sharded + (2 * (20 + 30 + 10) + 2 * 30) / 2


def test_the_document_has_a_row_for_each_claim_that_was_asked_for():
    rows = json.loads(called("c13 C8 --json", program=PROGRAM).stdout)["rows"]

    assert [row["id"] for row in rows] == ["C8", "C13"]
    assert rows[0]["verdict"] == "holds"
    assert all(row["figure"] and row["rule"] and row["setup"] for row in rows)


def test_what_cannot_be_is_said_before_any_work(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    for line, said in (
        ("C1 C9", "claim C9 needs scikit-learn"),
        ("C15", "no claim 'C15': expected one of C1, C2"),
        ("C8 --document no/a.md", "there is no folder no"),
    ):
        assert said in called(line, code=2, program=PROGRAM).stderr


@pytest.mark.slow
@pytest.mark.distributed
def test_replicas_of_a_whole_batch_agree_in_processes():
    (row,) = json.loads(called("C14 --json", program=PROGRAM).stdout)["rows"]

    assert row["verdict"] == "holds only if run with equal parts and no batch norm"
    assert all(case["differing"] == 0 for case in row["cases"])
