"""``testbed synthesize``: a program made for one network, beside the optimum and those that ship."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.commands.network import default_ranks
from testbed.errors import UsageError, how_to_install, is_installed
from testbed.options.arguments import Network, parse_sizes
from testbed.options.command import command
from testbed.output.table import progress
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed synthesize --network aws-p4d --ranks 16 --collective all_gather
  testbed synthesize --network mine.toml --ranks 8 --collective all_reduce --output forest.json
  testbed simulate forest.json,ring --network mine.toml --ranks 8 --nbytes 1G
"""


@command
def synthesize(
    network: Network = "dgx-a100",
    ranks: Annotated[int | None, typer.Option(metavar="N", min=2, max=512)] = None,
    collective: Annotated[str, typer.Option(metavar="NAME")] = "all_reduce",
    nbytes: Annotated[str, typer.Option(metavar="SIZE")] = "1G",
    root: Annotated[int, typer.Option(metavar="RANK", min=0)] = 0,
    fail_link: Annotated[list[str] | None, typer.Option(metavar="LINK")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE.json")] = None,
) -> Result:
    """Make a program for this network: trees or paths, so that its fullest link carries as little as can be.

    The program is proved, simulated, and compared with the optimum and with the programs that ship; if one
    of those is as fast, that is said, and it is what --output writes.

    Args:
        ranks: Places of the network; by default as its file says, or two nodes.
        collective: all_gather, reduce_scatter, all_reduce, broadcast, reduce or all_to_all.
        nbytes: Bytes of the buffer that it is made for.
        root: Of broadcast and reduce.
        fail_link: A link that has failed: 'node 0 NIC 1 up', or its number. May be repeated.
        output: Write the program; FILE.json is an algorithm wherever a name is.
    """
    from collectives.synthesis.synthesis import synthesize as made_for
    from sim import load_network
    from testbed.report.synthesized import synthesis_result

    sizes = parse_sizes(nbytes, 2, "--nbytes")
    if len(sizes) != 1:
        raise UsageError(f"--nbytes: a program is made for one size, got {nbytes!r}")
    if not is_installed("scipy"):
        raise UsageError(how_to_install("synthesize needs scipy", "synthesis"))
    if not is_installed("z3"):
        missing = how_to_install("no few steps are looked for, for small buffers: that needs z3", "synthesis")
        print(missing, file=sys.stderr)
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
    return synthesis_result(made, topology, output)
