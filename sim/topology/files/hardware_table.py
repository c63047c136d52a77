"""The table ``[hardware]`` of a network file: the fields of `sim.hardware.Hardware` as people write them.

Bandwidths and times have units (``intra_bandwidth = "20GB/s"``, ``net_overhead = "1us"``); the channels are
tables (``one_node = {count = 24, intra_bandwidth = "20GB/s"}``).
"""

from __future__ import annotations

from typing import Any

from sim.files.fields import Bandwidth, Count, Fields, Time
from sim.hardware import Channels, Cpu, Generation, Hardware, IntraLink


class ChannelsTable(Fields):
    """Parallel channels; by default as fast between nodes as inside."""

    count: Count
    intra_bandwidth: Bandwidth
    inter_bandwidth: Bandwidth | None = None

    def channels(self) -> Channels:
        """Return what the table says."""
        return Channels(self.count, self.intra_bandwidth, self.inter_bandwidth or self.intra_bandwidth)


class HardwareTable(Fields):
    """See `sim.hardware` for what the fields mean."""

    generation: Generation
    one_node: ChannelsTable
    several_nodes: ChannelsTable | None = None
    nvls_one_node: ChannelsTable | None = None
    nvls_several_nodes: ChannelsTable | None = None
    collnet: ChannelsTable | None = None
    intra_link: IntraLink = "nvlink"
    cpu: Cpu = "intel"
    net_overhead: Time | None = None
    net_latency: Time = 0
    ll128: bool = True
    split_tree: bool = True
    same_channels: bool = True
    gpu: str = ""

    def hardware(self) -> Hardware:
        """Return what the table says.

        Raises:
            TopologyError: fields that contradict each other.
        """
        said: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            own = f"{name}_ps" if name in ("net_overhead", "net_latency") else name
            said[own] = value.channels() if isinstance(value, ChannelsTable) else value
        return Hardware(**said)
