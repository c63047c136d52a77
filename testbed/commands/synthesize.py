"""``testbed synthesize``: a program made for one network, beside the optimum and those that ship."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.commands.network import default_ranks
from testbed.errors import reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import parse_sizes
from testbed.output.folder import check_writable, document
from testbed.output.table import progress

if TYPE_CHECKING:
    from rich.console import Console

    from collectives.synthesis import Synthesis
    from sim.topology import Topology
    from testbed.pages import Delivery

EXAMPLES = """\b
Examples:
  testbed synthesize --network aws-p4d --ranks 16 --collective all_gather
  testbed synthesize --network mine.toml --ranks 8 --collective all_reduce --output forest.json
  testbed simulate forest.json,ring --network mine.toml --ranks 8 --nbytes 1G
"""

MODEL = (
    "every message takes the network's own route and shares its links fairly (max-min); the optimum is that "
    "of programs that do not reduce in switches"
)


@reporting_errors
def synthesize(
    network: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A preset (testbed network) or a network file.")
    ] = "dgx-a100",
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            max=512,
            help="Places of the network; by default as its file says, or two nodes.",
        ),
    ] = None,
    collective: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="all_gather, reduce_scatter, all_reduce, broadcast, reduce or all_to_all."
        ),
    ] = "all_reduce",
    nbytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes of the buffer that it is made for.")
    ] = "1G",
    root: Annotated[int, typer.Option(metavar="RANK", min=0, help="Of broadcast and reduce.")] = 0,
    fail_link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINK", help="A link that has failed: 'node 0 NIC 1 up', or its number. May be repeated."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write the program; FILE.json is an algorithm wherever a name is."
        ),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Make a program for this network: trees or paths, so that its fullest link carries as little as can be.

    The program is proved, simulated, and compared with the optimum and with the programs that ship; if one
    of those is as fast, that is said, and it is what --output writes.
    """
    from collectives.synthesis.synthesis import synthesize as made_for
    from sim import load_network
    from testbed.errors import UsageError
    from testbed.pages import Delivery

    delivery = Delivery(as_json, html)
    delivery.check()
    sizes = parse_sizes(nbytes, 2, "--nbytes")
    if len(sizes) != 1:
        raise UsageError(f"--nbytes: a program is made for one size, got {nbytes!r}")
    if output is not None:
        check_writable(output)
    _check_solvers()
    description = load_network(network)
    topology = description.topology(default_ranks(description, ranks))
    if fail_link:
        failed = [topology.link_number(int(link) if link.isdecimal() else link) for link in fail_link]
        topology = topology.without_links(failed)
    if root >= topology.num_ranks:
        raise UsageError(f"--root: expected a rank from 0 to {topology.num_ranks - 1}, got {root}")
    with progress() as advance:
        made = made_for(topology, collective.replace("-", "_"), sizes[0], root=root, tell=advance)
    if output is not None:
        made.best_schedule().save(output)
    _report(made, topology, output, delivery)


def _check_solvers() -> None:
    """Refuse where what solves linear programs is not installed; say what goes without the other solver."""
    from testbed.errors import UsageError
    from testbed.extras import how_to_install, is_installed

    if not is_installed("scipy"):
        raise UsageError(how_to_install("synthesize needs scipy", "synthesis"))
    if not is_installed("z3"):
        missing = how_to_install("no few steps are looked for, for small buffers: that needs z3", "synthesis")
        print(missing, file=sys.stderr)


def _report(made: Synthesis, topology: Topology, output: Path | None, delivery: Delivery) -> None:
    from testbed.report.synthesized import answer, as_body, lines

    saved: dict[str, Any] = {} if output is None else {"output": str(output)}
    result = document(
        method=["proved", "simulated"],
        model=MODEL,
        topologies={topology.name: topology.digest()},
        **as_body(made, topology),
        **saved,
    )
    title, *facts = lines(made, topology)

    def show(console: Console) -> None:
        console.print(title, style="bold", markup=False, soft_wrap=True)
        console.print()
        for line in facts:
            console.print(line, markup=False, soft_wrap=True)
        console.print(
            f"\nProved for {topology.num_ranks} ranks. Simulated: {MODEL}.", style="dim", markup=False
        )
        if output is not None:
            which = f" ({made.best}, as it ships)" if made.shipped_is_faster else ""
            console.print(f"Program: {output}{which}", markup=False, soft_wrap=True)

    delivery.give(result, show, title, answer(made))
