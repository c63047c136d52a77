"""``testbed simulate``: the time of collectives on a network, and the load on its links."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from testbed.commands.network import default_ranks
from testbed.errors import UsageError
from testbed.options.arguments import MAX_RANKS, Network, SizeFactor, TraceFile, parse_placement, parse_sizes
from testbed.options.assumptions import CollectiveAssumptionOptions, assumptions_json
from testbed.options.cluster import DEFAULT_NETWORK
from testbed.options.command import command
from testbed.options.conditions import ConditionOptions
from testbed.output.table import progress
from testbed.result import Result
from testbed.tasks.bounds import bounded

if TYPE_CHECKING:
    from testbed.studies.simulation import Simulated

EXAMPLES = """\b
Examples:
  testbed simulate ring,halving_doubling --network dgx-h100 --ranks 64 --nbytes 1M
  testbed simulate hierarchical --network dgx-h100 --links --plot load.png
  testbed simulate ring --network nvlink-400g --straggler 5:2 --trace slow.json
  testbed simulate ring tree swing --nbytes 4K-1G --plot sizes.png
  testbed simulate auto --model nccl --network dgx-a100 --nbytes 1K,1M,1G
"""


@partial(command, draws="time and bus bandwidth over size, or of one size the load of the links")
def simulate(
    algorithm: Annotated[list[str], typer.Argument(metavar="ALGORITHM...")],
    network: Network = DEFAULT_NETWORK,
    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None,
    nbytes: Annotated[str, typer.Option(metavar="SIZES")] = "64M",
    factor: SizeFactor = 2,
    collective: Annotated[str, typer.Option(metavar="NAME")] = "all_reduce",
    placement: Annotated[str, typer.Option(metavar="NAME|LIST")] = "packed",
    engine: Literal["auto", "makespan", "events", "ranks"] = "auto",
    *,
    counts: CollectiveAssumptionOptions,
    under: ConditionOptions,
    links: Annotated[bool, typer.Option("--links")] = False,
    all_links: Annotated[bool, typer.Option("--all-links")] = False,
    trace: TraceFile = None,
) -> Result:
    """Predict how long a collective takes on a network, and see where its time goes.

    One algorithm at one size is reported in full; several are compared, with the bottleneck of each.

    Args:
        algorithm: Names, name:key=value, FILE.py:FUNCTION, FILE.xml, FILE.json; auto: the cheapest; nvls:
            reduced in the switches; nccl, native: what NCCL or Gloo runs; all: those that ship. Several are
            compared.
        ranks: Places of the network, where its file does not say; by default 64 or two nodes.
        nbytes: Buffer sizes: 64M, a list 4K,1M, or a range 4K-1G (times --factor).
        collective: Collective to simulate.
        placement: packed, round_robin, or the place of each rank: 0,8,1,9 or 0-7,16-23.
        engine: auto: makespan where it is exact, else events; ranks: events, each rank by itself.
        links: List the links that were used most, those that are alike in one line.
        all_links: List all links that were used, each by itself.
    """
    from sim import load_network
    from testbed.calibration.live.calibration import origin_of
    from testbed.report.simulation import simulation_result
    from testbed.studies.simulation import SimulationRequest, entries_of, simulated

    description = load_network(network, ideal=counts.ideal)
    topology = description.topology(default_ranks(description, ranks))
    where = parse_placement(placement)
    num_ranks = topology.num_ranks if isinstance(where, str) else len(where)
    collective = collective.replace("-", "_")
    assumed = counts.on(topology)
    entries = entries_of(algorithm, collective, num_ranks, topology.ranks_per_node, assumed)
    sizes = tuple(dict.fromkeys(parse_sizes(nbytes, factor, "--nbytes")))
    asked = {**counts.asked, **under.asked}
    request = SimulationRequest(
        entries=entries,
        sizes=sizes,
        collective=collective,
        topology=topology,
        placement=where,
        engine=engine,
        assumed=assumed,
        conditions=tuple(under.parse()),
        assumptions=assumptions_json([network], ",".join(algorithm), asked, {description.name: assumed}),
        links=links or all_links,
        observe=trace is not None,
        calibrated=origin_of(description),
    )

    if trace is not None and (runs := len(entries) * len(sizes)) > 1:
        raise UsageError(f"--trace is of one run, but {runs} are asked for: name one algorithm and one size")
    results: list[Simulated] = []
    with bounded() as stop, progress(len(entries) * len(sizes)) as advance:
        results.extend(simulated(request, advance, watched=sys.stderr.isatty()))
    stop.check(results, len(entries) * len(sizes), "run")
    result = simulation_result(request, results, all_links=all_links)
    if trace is not None:
        results[0].run.trace.save(trace)
        result = replace(result, files={"Trace, for https://ui.perfetto.dev": trace})
    return stop.ended(result)
