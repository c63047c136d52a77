"""Messages lost with links that have failed, and the error that names them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sim.errors import LinkFailedError
from sim.network.flow import Flow
from sim.topology import Topology
from sim.units import format_time

_SHOWN = 4  # lost messages that an error lists


def lost_messages(
    topology: Topology, flows: Sequence[Flow], down: Mapping[int, str], now_ps: int
) -> LinkFailedError:
    """Return the error that says which messages were lost, and with which links.

    Args:
        topology: the network.
        flows: that were lost.
        down: the links that have failed, each with the reason why there is no other way, or an empty text.
        now_ps: the time.
    """
    crossed = {link for flow in flows for link in flow.path.links}
    failed = [link for link in down if link in crossed]
    names = tuple(topology.link_name(link) for link in failed)
    lost = tuple(_describe(flow) for flow in flows)

    messages_of: defaultdict[str, list[str]] = defaultdict(list)
    for what, message in lost[:_SHOWN]:
        messages_of[what].append(message)
    listed = "; ".join(f"{what}, {', '.join(messages)}" for what, messages in messages_of.items())
    if len(lost) > _SHOWN:
        listed += f" and {len(lost) - _SHOWN} more messages"

    reasons = [down[link] for link in failed if down[link]]
    advice = reasons or ["with reroute=True messages take another way where there is one"]
    message = (
        f"{topology.name}: link {' and '.join(names)} has failed; lost at {format_time(now_ps)}: "
        f"{listed}; {'; '.join(advice)}"
    )
    return LinkFailedError(names, now_ps, lost, message)


def _describe(flow: Flow) -> tuple[str, str]:
    said = flow.sender.describe(flow.number)
    return said or ("a message", f"rank {flow.path.source} to rank {flow.path.destination}")
