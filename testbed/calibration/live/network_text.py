"""Network files of calibrations: the links that were found, as TOML, and beside them all that was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from testbed.calibration.live.application import sharing_of
from testbed.calibration.live.calibration import Calibration, LinkShares, SoftwareCosts
from testbed.calibration.live.plan import Wiring

_PS = 1e12


def wiring_of(calibration: Calibration) -> Wiring:
    """Return who shares what on the network that *calibration* is of."""
    origin = calibration.origin
    return Wiring(origin.num_ranks, origin.ranks_per_node, origin.ranks_per_rack, origin.transport == "shm")


def network_toml(calibration: Calibration) -> str:
    """Return a network file for any number of ranks, with *calibration* as its table ``[calibration]``."""
    origin = calibration.origin
    kind = wiring_of(calibration).kind
    held = "median of " + ", ".join(
        f"{_size(fit.nbytes)}: {100 * fit.median_error:.1f} %" for fit in calibration.fits
    )
    lines = [
        *(
            f"# {line}"
            for line in wrap(f"Written by testbed calibrate.  Median error of the fit: {held}.", 100)
        ),
        f"# Nothing was measured of buffers below {origin.smallest} B or above {origin.largest} B.",
        "#",
        "# Software is no part of a network; what it adds is stated where something is simulated:",
        *(
            f"#   {whose} --transport-model {origin.transport} {_options(costs)}"
            for whose, costs in (("ours:  ", calibration.programs), ("native:", calibration.native))
            if costs is not None
        ),
        "schema = 1",
        f'kind = "{kind}"',
        f"description = {json.dumps(f'{calibration.name}: {origin.network}')}",
        f'source = "testbed calibrate, {origin.measured}, {origin.num_ranks} ranks over {origin.transport}"',
        *_links(calibration, kind),
        "",
        *_table("calibration", _without_nothing(calibration.as_json())),
    ]
    return "\n".join(lines) + "\n"


def _links(calibration: Calibration, kind: str) -> list[str]:
    origin, classes = calibration.origin, calibration.classes
    if kind == "host":
        memory = classes["memory"].rate.value
        lines = [*_class(classes["inside_node"], ""), f"memory_bandwidth = {round(memory)}"]
        if (cached := calibration.cached) is not None:
            lines += [f"cache = {cached.nbytes}", f"cache_speedup = {cached.speedup}"]
            lines.append(f"cache_copy_speedup = {cached.copy_speedup}")
        return lines
    if kind == "nodes":
        return [
            f"ranks_per_node = {origin.ranks_per_node}",
            *_class(classes["inside_node"], "intra_"),
            "nics_per_node = 1",
            *_class(classes["between_nodes"], "nic_"),
        ]
    if kind == "leaf_spine":
        near, far = classes["between_nodes"], classes["trunk"]
        extra = max(0.0, far.latency.value - near.latency.value)
        return [
            f"hosts_per_leaf = {origin.ranks_per_rack}",
            *_class(near, ""),
            *_class(far, "uplink_", extra),
        ]
    (only,) = classes.values()
    return _class(only, "")


def _class(shares: LinkShares, prefix: str, latency: float | None = None) -> list[str]:
    """Return the fields of a class of links; a path has two of them."""
    table = sharing_of(shares)
    path = shares.latency.value if latency is None else latency
    ways = f"one_way = {list(table.one_way)}, both_ways = {list(table.both_ways)}"
    return [
        f"{prefix}bandwidth = {round(shares.rate.value)}",
        f'{prefix}latency = "{round(path / 2 * _PS)}ps"',
        f"{prefix}sharing = {{ {ways} }}",
    ]


def _options(costs: SoftwareCosts) -> str:
    """Return the options by which commands take *costs*."""
    options = [
        f"--overhead {_time(costs.overhead.value)}",
        f"--arrival-overhead {_time(costs.arrival_overhead.value)}",
    ]
    if costs.reduction_bandwidth is not None:
        options.append(f"--reduction-bandwidth {round(costs.reduction_bandwidth.value)}")
    if costs.call_overhead is not None:
        options.append(f"--call-overhead {_time(costs.call_overhead.value)}")
    if costs.copy_bandwidth is not None:
        options.append(f"--copy-bandwidth {round(costs.copy_bandwidth.value)}")
    return " ".join(options)


def _time(seconds: float) -> str:
    return f"{round(seconds * 1e9)}ns"


def _size(nbytes: int) -> str:
    from testbed.output.table import spell_size

    return spell_size(nbytes)


def _table(name: str, content: Mapping[str, Any]) -> list[str]:
    """Return a TOML table; the tables in it that are flat are written in a line."""
    own, below = [], []
    for key, value in content.items():
        if isinstance(value, Mapping) and not _is_flat(value):
            below += ["", *_table(f"{name}.{key}", value)]
        elif isinstance(value, list) and len(value) > 1:
            own += [f"{key} = [", *(f"  {_value(one)}," for one in value), "]"]
        else:
            own.append(f"{key} = {_value(value)}")
    return [f"[{name}]", *own, *below] if own else below[1:]


def _is_flat(content: Mapping[str, Any]) -> bool:
    return not any(isinstance(value, (Mapping, list)) for value in content.values())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(own)}" for key, own in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)  # strings, numbers and truth values are written as in JSON


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)


def _without_nothing(content: Any) -> Any:
    """Return *content* without the keys that hold None, for which TOML has no word."""
    if isinstance(content, Mapping):
        return {key: _without_nothing(own) for key, own in content.items() if own is not None}
    return [_without_nothing(own) for own in content] if isinstance(content, list) else content
