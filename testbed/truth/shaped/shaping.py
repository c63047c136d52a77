"""Shaping: what holds a link of a shaped network down to its rate, and how its hosts speak TCP.

A link's rate is held by tbf, a token bucket, which counts Ethernet frames: of one of 1514 bytes 1448 are
payload.  Left to its defaults the kernel makes a poor network of such links: pieces of 64 KiB stand before
acknowledgements of the other direction, windows grow until queues overflow, and flows get unequal shares
(measured with plain sockets among four hosts at 200 Mbit/s: 0.71 of the rate in an all-to-all, its slowest
flow half as fast as its quickest).  Short pieces, a bounded window and a short queue of each sender make it
what a network is that is run well: 0.93 to 0.96 of the rate, whatever the pattern, in equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass

PAYLOAD = 1448
"""Bytes of payload in a full Ethernet frame, of which 1514 cross the link."""


@dataclass(frozen=True)
class Shaping:
    """How links are held down, and how hosts speak TCP.

    Attributes:
        burst_bytes: by which a link that was idle may be ahead of its rate; just above `pieces` frames,
            for a token bucket cuts up what is larger.
        queue_bytes: that wait before a link at most; what comes on top is lost.
        pieces: frames that travel through the kernel as one.
        window_bytes: that a connection has under way at most.
        queued_by_sender: bytes of a connection that its own host queues at most.
        congestion_control: of TCP, by the kernel's name.
    """

    burst_bytes: int = 9200
    queue_bytes: int = 1 << 20
    pieces: int = 6
    window_bytes: int = 65536
    queued_by_sender: int = 16384
    congestion_control: str = "reno"

    def bucket(self, rate: int) -> str:
        """Return the arguments of tbf for *rate* bytes per second."""
        return f"rate {8 * rate}bit burst {self.burst_bytes} limit {self.queue_bytes}"

    def device(self) -> str:
        """Return what ``ip link set`` is told of every device."""
        return f"mtu 1500 gso_max_size {self.pieces * PAYLOAD} gso_max_segs {self.pieces}"

    def host_parameters(self) -> dict[str, str | int]:
        """Return kernel parameters of a host, by their paths below ``/proc/sys/net``."""
        return {
            **QUIET,
            "ipv4/tcp_congestion_control": self.congestion_control,
            "ipv4/tcp_wmem": f"4096 {self.window_bytes} {self.window_bytes}",
            "ipv4/tcp_rmem": f"4096 131072 {4 * self.window_bytes}",
            "ipv4/tcp_limit_output_bytes": self.queued_by_sender,
            "ipv4/tcp_slow_start_after_idle": 0,
            "ipv4/tcp_no_metrics_save": 1,
        }


QUIET: dict[str, str | int] = {
    "ipv6/conf/all/disable_ipv6": 1,
    "ipv6/conf/default/disable_ipv6": 1,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
}
"""Kernel parameters under which a namespace sends nothing by itself, and takes what comes by any device."""
