"""Networks of calibrations: their fields, and a file with all that was found.

The constants of links are the fields of a network of the kind that was measured.  A network file has them,
and the whole calibration as a table beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from sim.topology.sharing_table import Sharing
from testbed.calibration import toml_text
from testbed.calibration.live.calibration import Calibration, LinkClass, LinkShares, SoftwareCosts
from testbed.calibration.live.plan import Wiring
from testbed.output.table import spell_size

_PS = 1e12


@dataclass(frozen=True)
class LinkFields:
    """Of a class of links: bytes/s, seconds of a path, and parts of the rate by numbers of flows."""

    rate: int
    latency: float
    one_way: Sequence[float]
    both_ways: Sequence[float]

    def named(self, prefix: str) -> dict[str, Any]:
        """Return them as a network's fields, which begin with *prefix*; a path has two links of a class."""
        return {
            f"{prefix}bandwidth": self.rate,
            f"{prefix}latency": f"{round(self.latency / 2 * _PS)}ps",
            f"{prefix}sharing": {"one_way": list(self.one_way), "both_ways": list(self.both_ways)},
        }


def network_fields(
    wiring: Wiring, links: Mapping[LinkClass, LinkFields], cache: int, speedup: float, copy_speedup: float
) -> dict[str, Any]:
    """Return the fields of a network of this *wiring*, as `Topology` and network files name them.

    Args:
        wiring: who shares what.
        links: of each class; of trunks the latency is that by which a path through one is longer.
        cache: bytes that fit into the caches of a host; 0: nobody has looked.
        speedup: how many times as fast messages of these are.
        copy_speedup: how many times as fast copies of these are.
    """
    near, far = links[wiring.classes[0]], links[wiring.classes[-1]]
    match wiring.kind:
        case "host":
            cached = {"cache": cache, "cache_speedup": speedup, "cache_copy_speedup": copy_speedup}
            return {**near.named(""), "memory_bandwidth": far.rate, **(cached if cache else {})}
        case "nodes":
            cards = {"nics_per_node": 1, **far.named("nic_")}
            return {"ranks_per_node": wiring.ranks_per_node, **near.named("intra_"), **cards}
        case "leaf_spine":
            return {"hosts_per_leaf": wiring.ranks_per_rack, **near.named(""), **far.named("uplink_")}
    return near.named("")


def network_toml(calibration: Calibration) -> str:
    """Return a network file for any number of ranks, with *calibration* as its table ``[calibration]``."""
    origin, cached = calibration.origin, calibration.cached
    wiring = Wiring(origin.num_ranks, origin.ranks_per_node, origin.ranks_per_rack, origin.transport == "shm")
    held = "median of " + ", ".join(
        f"{spell_size(fit.nbytes)}: {100 * fit.median_error:.1f} %" for fit in calibration.fits
    )
    head = {
        "schema": 1,
        "kind": wiring.kind,
        "description": f"{calibration.name}: {origin.network}",
        "source": f"testbed calibrate, {origin.measured}, {origin.num_ranks} ranks over {origin.transport}",
        **network_fields(
            wiring,
            _link_fields(calibration),
            *((cached.nbytes, cached.speedup, cached.copy_speedup) if cached else (0, 1.0, 1.0)),
        ),
    }
    lines = [
        *wrap(f"Written by testbed calibrate.  Median error of the fit: {held}.", 100),
        f"Nothing was measured of buffers below {origin.smallest} B or above {origin.largest} B.",
        "",
        "Software is no part of a network; what it adds is stated where something is simulated:",
        *(
            f"  {whose} --transport-model {origin.transport} {_options(costs)}"
            for whose, costs in (("ours:  ", calibration.programs), ("native:", calibration.native))
            if costs is not None
        ),
    ]
    comment = (f"# {line}".rstrip() for line in lines)
    below = toml_text.table("calibration", calibration.as_json())
    return "\n".join([*comment, *toml_text.fields(head), "", *below, ""])


def _link_fields(calibration: Calibration) -> dict[LinkClass, LinkFields]:
    """Return the fields of each class of links; of trunks the latency that they add."""
    found: dict[LinkClass, LinkFields] = {}
    for kind, shares in calibration.classes.items():
        table, latency = sharing_of(shares), shares.latency.value
        if kind == "trunk":
            latency = max(0.0, latency - calibration.classes["between_nodes"].latency.value)
        found[kind] = LinkFields(round(shares.rate.value), latency, table.one_way, table.both_ways)
    return found


def _options(costs: SoftwareCosts) -> str:
    """Return the options by which commands take *costs*."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in costs.options("ns").items())


def sharing_of(shares: LinkShares) -> Sharing:
    """Return *shares* as a sharing table."""
    one_way, both_ways = (
        tuple(round(min(1.0, own.value), 4) for own in ways) for ways in (shares.one_way, shares.both_ways)
    )
    return Sharing(one_way, both_ways)
