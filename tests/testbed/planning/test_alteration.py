"""Alterations change what they name and nothing else."""

from fractions import Fraction

import numpy as np
import pytest

from collectives import simulate
from collectives.errors import NotSupportedError
from ddp.profiles import load_profile
from sim import load_network
from testbed.planning.alteration import ALL_LINKS, AS_IT_IS, Alteration, link_groups

TOPOLOGY = load_network("dgx-h100").topology(16)


def test_nothing_altered_is_the_same_network_and_the_same_work():
    profile = load_profile("resnet50")

    assert AS_IT_IS.of_topology(TOPOLOGY).digest() == TOPOLOGY.digest()
    assert AS_IT_IS.of_profile(profile) == profile
    assert AS_IT_IS.of_inefficiencies(("late", "input:time=1ms")) == ("late", "input:time=1ms")


@pytest.mark.parametrize("name", ["dgx-h100", "ethernet-100g"])
def test_the_groups_of_links_are_all_links_once(name):
    topology = load_network(name).topology(16)

    links = np.concatenate(list(link_groups(topology).values()))

    assert sorted(links.tolist()) == list(range(topology.num_links))


def test_more_of_one_bandwidth_leaves_the_other_links_alone():
    own = link_groups(TOPOLOGY)["nic_bandwidth"]
    faster = Alteration(bandwidth=(("nic_bandwidth", Fraction(11, 10)),)).of_topology(TOPOLOGY)

    changed = np.flatnonzero(faster.link_bandwidth != TOPOLOGY.link_bandwidth)

    assert changed.tolist() == own.tolist()
    assert (faster.link_bandwidth[own] == TOPOLOGY.link_bandwidth[own] * 11 // 10).all()
    assert (faster.link_latency == TOPOLOGY.link_latency).all()
    with pytest.raises(NotSupportedError, match="it has nic_bandwidth, intra_bandwidth"):
        Alteration(bandwidth=(("uplink_bandwidth", Fraction(2)),)).of_topology(TOPOLOGY)


@pytest.mark.parametrize("model", ["nccl", "measured"])
def test_a_closed_form_keeps_its_choice_and_has_its_parts_altered(model):
    run = simulate("auto", nbytes=2**26, topology=TOPOLOGY, model=model)
    faster = Alteration(bandwidth=((ALL_LINKS, Fraction(2)),)).of_formula()
    quicker = Alteration(latency=Fraction(1, 2)).of_formula()

    halves = run.time_ps - faster.of(run) + run.time_ps - quicker.of(run)

    assert halves == pytest.approx(run.time_ps / 2, abs=2)
    assert quicker.of(run) < run.time_ps
    with pytest.raises(NotSupportedError, match="knows of no links"):
        Alteration(unshared=True).of_formula()


def test_only_ranks_that_share_cards_gain_when_nothing_is_shared():
    alone = Alteration(unshared=True)

    gains = {}
    for name in ("aws-p4d", "dgx-h100"):  # four cards for eight ranks, and eight
        topology = load_network(name).topology(16)
        usual, unshared = (
            simulate("hierarchical", nbytes=2**28, topology=own).time_ps
            for own in (topology, alone.of_topology(topology))
        )
        gains[name] = usual / unshared

    assert gains["aws-p4d"] > 1.2
    assert gains["dgx-h100"] == 1
