"""Findings: they hold what their rules say, on figures that are known in advance."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from ddp import simulate_step
from ddp.profiles import load_profile
from sim import Topology
from testbed.truth.claims import memory, overlap, pipeline, scaling
from testbed.truth.claims.catalogue import TRIALS
from testbed.truth.claims.claim import Finding
from testbed.truth.claims.page import page
from testbed.truth.claims.setups import ETHERNET_10, NVLINK, PLACES, RESNET, Training, step

QUICK = {"C8": overlap.accumulation, "C11": scaling.data_parallel, "C13": memory.memory}


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    """Return the findings that take no more than a second or two."""
    return {name: trial() for name, trial in QUICK.items()}


def test_the_catalogue_has_fourteen_claims_in_order() -> None:
    assert list(TRIALS) == [f"C{number}" for number in range(1, 15)]


def test_every_case_of_a_finding_has_the_same_properties(findings: dict[str, Finding]) -> None:
    for finding in findings.values():
        assert len({tuple(case.where) for case in finding.cases}) == 1
        assert len({case.name for case in finding.cases}) == len(finding.cases)


def test_the_page_in_the_documents_says_what_is_found(findings: dict[str, Finding]) -> None:
    """If this fails: testbed claims --document docs/claims.md."""
    shipped = (Path(__file__).parents[4] / "docs" / "claims.md").read_text(encoding="utf-8")

    for name in ("C8", "C13"):
        _, _, section = page([findings[name].row()], {}).partition(f"## {name}\n")
        assert section in shipped
    assert [f"[{name}](#{name.lower()})" in shipped for name in TRIALS] == [True] * 14


def test_accumulation_divides_the_number_of_calls(findings: dict[str, Finding]) -> None:
    assert findings["C8"].verdict == "holds"
    for case in findings["C8"].cases:
        assert case.values["calls_every_pass"] == overlap.PASSES * int(case.values["calls_accumulated"])


@pytest.mark.parametrize("wanted", overlap.SHARES)
def test_the_network_is_given_the_rate_at_which_communication_is_the_stated_share(wanted: Fraction) -> None:
    rate = overlap._rate_for(RESNET, wanted)
    topology = Topology.switch(num_ranks=overlap.SHARE_RANKS, bandwidth=rate, latency=overlap.SHARE_LATENCY)

    run = simulate_step(load_profile("resnet50"), topology=topology, strategy="after_backward")

    assert run.exposed_seconds / run.seconds == pytest.approx(float(wanted), abs=1e-6)


def test_slower_networks_are_less_efficient() -> None:
    efficiencies = [step(Training(RESNET, place)).efficiency for place in PLACES]

    assert efficiencies == sorted(efficiencies, reverse=True)


def test_a_divided_batch_takes_a_divided_time_on_one_rank() -> None:
    whole, divided = (Training(RESNET, NVLINK, divided=factor).profile() for factor in (1, 8))

    assert divided.compute_ps == pytest.approx(whole.compute_ps / 8, abs=2)
    assert divided.nbytes == whole.nbytes


def test_gradients_in_half_precision_have_half_the_bytes_and_the_same_computation() -> None:
    whole, halved = (Training(RESNET, NVLINK, half=wanted).profile() for wanted in (False, True))

    assert 2 * halved.nbytes == whole.nbytes
    assert halved.compute_ps == whole.compute_ps
    assert (
        step(Training(RESNET, ETHERNET_10, half=True)).seconds < step(Training(RESNET, ETHERNET_10)).seconds
    )


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_the_bubble_of_a_schedule_is_that_of_the_closed_form(schedule: str) -> None:
    bubble = pipeline._bubble(schedule, pipeline.STAGES)

    assert bubble == pytest.approx(3 / 7, abs=1e-3)
