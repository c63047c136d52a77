"""Shaping: what holds a link of a shaped network down to its rate, and how its hosts speak TCP.

A link's rate is held by htb, a hierarchy of token buckets, which count Ethernet frames: of one of 1514
bytes 1448 are payload.  Each pair of hosts has a bucket and a queue of its own below that of the link, so
pairs get equal shares, what one leaves goes to the others, and acknowledgements to one host do not wait
behind data to another.  That is a choice: with one bucket and one queue for all (tbf) a flow that waits in
two full queues falls behind, and predictions for an oversubscribed trunk, with the same constants, were off
by up to 10 % instead of 2 %.

Left to its defaults the kernel makes a poor network of such links: pieces of 64 KiB stand before
acknowledgements of the other direction, windows grow until queues overflow, and flows get unequal shares
(measured with plain sockets among four hosts at 200 Mbit/s: 0.71 of the rate in an all-to-all, its slowest
flow half as fast as its quickest).  Short pieces, a bounded window and a short queue of each sender make it
what a network is that is run well: 0.94 to 0.96 of the rate, whatever the pattern, in equal shares.

`COMMON` is what most clusters have instead: hosts as Linux makes them, and a switch with one queue before
each port, for all flows that leave by it; what comes when it is full is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PAYLOAD, FRAME = 1448, 1514
"""Bytes of payload in a full Ethernet frame, and of all that crosses the link."""

LEAST_BURST = 1600
"""Bytes of burst that are always there: a frame."""

PORT_BURST_SECONDS = 1e-3
"""By which a port with one queue for all may be ahead of its rate."""

_FIRST, _OTHERS = 16, "fff"
"""The numbers of the first pair's class, and of that of everything else."""


@dataclass(frozen=True)
class Shaping:
    """How links are held down, and how hosts speak TCP.

    Attributes:
        burst_seconds: by which a link that was idle may be ahead of its rate; longer than a timer of a
            loaded machine is late, for what is then lost does not come back.
        queue_bytes: of a pair of hosts that wait before a link at most; what comes on top is lost.
        pieces: frames that travel through the kernel as one.
        window_bytes: that a connection has under way at most.
        queued_by_sender: bytes of a connection that its own host queues at most.
        congestion_control: of TCP, by the kernel's name.
        port_queue: bytes of all flows together that wait before a port of a switch at most; None: each
            pair of hosts has its own queue there, too.
    """

    burst_seconds: float = 160e-6
    queue_bytes: int = 1 << 18
    pieces: int = 6
    window_bytes: int = 65536
    queued_by_sender: int = 16384
    congestion_control: str = "reno"
    port_queue: int | None = None

    def port(
        self, device: str, rate: int, pairs: Sequence[tuple[str, str]], *, at_switch: bool = False
    ) -> list[str]:
        """Return what ``tc`` is told of *device*, by which messages leave at *rate* bytes per second.

        Args:
            device: its name.
            rate: of all together.
            pairs: the addresses, from and to, whose messages leave by it; each pair has its fair part.
            at_switch: whether it is a switch's and not a host's.
        """
        if at_switch and self.port_queue is not None:
            # tbf takes trains of frames apart, so that of one for which there is no room a part is lost.
            burst = max(2 * FRAME, round(rate * PORT_BURST_SECONDS))
            held = f"tbf rate {8 * rate}bit burst {burst} limit {self.port_queue}"
            return [f"qdisc replace dev {device} root {held}"]
        classes = [f"class add {line}" for line in self._classes(device, rate, len(pairs))]
        queues = [
            f"qdisc add dev {device} parent 1:{number:x} bfifo limit {self.queue_bytes}"
            for number in range(_FIRST, _FIRST + len(pairs))
        ]
        filters = [
            f"filter add dev {device} parent 1: protocol ip prio 1 u32 "
            f"match ip src {source}/32 match ip dst {destination}/32 flowid 1:{number:x}"
            for number, (source, destination) in enumerate(pairs, _FIRST)
        ]
        return [
            f"qdisc replace dev {device} root handle 1: htb default {_OTHERS}",
            *classes,
            *queues,
            *filters,
        ]

    def changed(self, device: str, rate: int, num_pairs: int) -> list[str]:
        """Return what ``tc`` is told when *device*, by which so many pairs send, gets another *rate*.

        Only where each pair has a queue of its own.
        """
        return [f"class change {line}" for line in self._classes(device, rate, num_pairs)]

    def _classes(self, device: str, rate: int, num_pairs: int) -> Iterator[str]:
        burst = max(LEAST_BURST, round(rate * self.burst_seconds))
        most = f"ceil {8 * rate}bit burst {burst} cburst {burst}"
        yield f"dev {device} parent 1: classid 1:1 htb rate {8 * rate}bit {most}"

        turn = f"quantum {self.pieces * FRAME + 116}"
        part = max(1, 8 * rate // max(1, num_pairs))
        for number in range(_FIRST, _FIRST + num_pairs):
            yield f"dev {device} parent 1:1 classid 1:{number:x} htb rate {part}bit {most} {turn}"
        yield f"dev {device} parent 1:1 classid 1:{_OTHERS} htb rate {part}bit {most} {turn}"

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


COMMON = Shaping(
    queue_bytes=1 << 20,
    pieces=44,
    window_bytes=1 << 22,
    queued_by_sender=1 << 20,
    port_queue=1 << 18,
)
"""One queue of 256 KiB for all flows of a port, and hosts as Linux makes them: trains of frames up to 64 KiB,
windows up to 4 MiB.  Reno is what a namespace may use; where windows are as short as here, Cubic lets them
grow as Reno does (RFC 9438, section 4.3)."""

QUIET: dict[str, str | int] = {
    "ipv6/conf/all/disable_ipv6": 1,
    "ipv6/conf/default/disable_ipv6": 1,
    "ipv4/conf/all/rp_filter": 0,
    "ipv4/conf/default/rp_filter": 0,
}
"""Kernel parameters under which a namespace sends nothing by itself, and takes what comes by any device."""
