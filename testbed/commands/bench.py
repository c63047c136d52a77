"""``testbed bench``: the columns of nccl-tests, simulated or measured, or one beside the other."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.arguments import parse_ranks, parse_sizes
from testbed.benchmark import (
    Request,
    Result,
    Transport,
    measure_processes,
    measure_threads,
    measured,
    simulate_rows,
    with_simulation,
)
from testbed.errors import CheckError, UsageError, reporting_errors
from testbed.launch import RankExitError, launch
from testbed.measure import ITEM_SIZES, count_of
from testbed.report.folder import document
from testbed.report.table import print_json, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from collectives.program import Algorithm
    from sim import Topology

EXAMPLES = """\b
Examples:
  testbed bench --transport sim --ranks 64 --network switch-100g
  testbed bench --transport gloo --ranks 4 --sizes 4K-16M --compare
  torchrun --nproc-per-node 4 --no-python testbed bench --transport nccl
"""

HEADINGS = {"floor_us": "floor\n(us)", "simulated_us": "simulated\n(us)", "error_percent": "error\n(%)"}

DEFAULT_RANKS = 4
DEFAULT_NETWORK = "switch-100g"


@reporting_errors
def bench(
    transport: Annotated[
        Transport,
        typer.Option(help="sim: virtual time; threads: of one process; gloo, nccl: processes, real time."),
    ] = Transport.SIM,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"World size; by default {DEFAULT_RANKS}, under torchrun its own."),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A name, name:key=value, FILE.py:FUNCTION, FILE.xml, or native: the vendor's own.",
        ),
    ] = "ring",
    sizes: Annotated[
        str,
        typer.Option(metavar="LIST", help="4K-64M (times --factor), or a list: 4K,1M; K, M, G are 2^10, …"),
    ] = "4K-64M",
    factor: Annotated[int, typer.Option(metavar="N", help="Step of a range of sizes.")] = 2,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help=f"One of {', '.join(ITEM_SIZES)}.")] = "float32",
    network: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help=f"Network to simulate; by default {DEFAULT_NETWORK}."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Simulated beside measured; without --network, on a switch fitted to this very run.",
        ),
    ] = False,
    payload: Annotated[
        bool,
        typer.Option("--payload", help="sim: carry real tensors too, and check them (takes memory for all)."),
    ] = False,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, help="Timed calls of each size.")] = 20,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, help="Calls before them.")] = 5,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a collective may wait for its peers.")
    ] = 60.0,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Where gloo and nccl ranks meet; by default one that is free."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Time all-reduce in the columns of nccl-tests.

    The payload is of integers and checked on every rank; a wrong element ends with exit code 1.

    gloo and nccl start their own processes, or join those of torchrun.
    """
    joined = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    num_ranks = _num_ranks(ranks, joined)
    if timeout <= 0:
        raise UsageError(f"--timeout {timeout:g}: expected a number of seconds above 0")
    if compare and transport is Transport.SIM:
        raise UsageError("--compare puts simulated beside measured: choose --transport threads, gloo or nccl")
    if payload and transport is not Transport.SIM:
        raise UsageError(f"--payload is for --transport sim; over {transport} the payload always travels")
    if compare and num_ranks == 1:
        raise UsageError("--compare needs at least 2 ranks: one rank sends nothing")
    if network is not None and transport is not Transport.SIM and not compare:
        raise UsageError(f"--network is simulated, {transport} is not: add --compare, or use --transport sim")
    counts = tuple(count_of(size, dtype) for size in parse_sizes(sizes, factor))
    chosen = _resolve(algorithm, transport)
    topology = _topology(network, num_ranks) if network or transport is Transport.SIM else None
    request = Request(transport, num_ranks, algorithm, counts, dtype, iterations, warmup, timeout)

    if transport in (Transport.GLOO, Transport.NCCL) and not joined:
        _launch(num_ranks, port)
        return
    if chosen is not None and topology is not None and transport is Transport.SIM:
        result = simulate_rows(request, chosen, topology, payload)
    else:
        rows = measure_threads(request) if transport is Transport.THREADS else measure_processes(request)
        if rows is None:
            return
        result = measured(request, rows)
        if compare:
            result = with_simulation(result, request, chosen, topology)
    _report(request, result, as_json)


def _num_ranks(ranks: int | None, joined: bool) -> int:
    if joined:
        world_size = int(os.environ["WORLD_SIZE"])
        if ranks not in (None, world_size):
            raise UsageError(f"--ranks {ranks}, but torchrun has started {world_size}; leave --ranks out")
        return world_size
    return parse_ranks(str(DEFAULT_RANKS if ranks is None else ranks))[0]


def _resolve(algorithm: str, transport: Transport) -> Algorithm | None:
    """Return the algorithm, None for the vendor's own."""
    from collectives import resolve_algorithm

    if algorithm != "native":
        return resolve_algorithm(algorithm)
    if transport in (Transport.SIM, Transport.THREADS):
        raise UsageError(f"--algorithm native is the vendor's own, and {transport} has none: try ring")
    return None


def _topology(network: str | None, num_ranks: int) -> Topology:
    from sim import load_network

    return load_network(network or DEFAULT_NETWORK).topology(num_ranks)


def _launch(num_ranks: int, port: int | None) -> None:
    """Run this very command once per rank, as torchrun would; rank 0 prints."""
    try:
        launch([sys.executable, "-m", "testbed", *sys.argv[1:]], num_ranks, port=port)
    except RankExitError as error:
        if not error.said:
            raise
        raise typer.Exit(error.exit_code) from None


def _report(request: Request, result: Result, as_json: bool) -> None:
    if as_json:
        more = [
            dict(zip(result.more, figures, strict=True))
            for figures in zip(*result.more.values(), strict=True)
        ]
        rows = [
            asdict(row) | extra
            for row, extra in zip(result.rows, more or [{}] * len(result.rows), strict=True)
        ]
        body = document(
            method=result.method,
            model="; ".join(result.models),
            topologies={topology.name: topology.digest() for topology in result.topologies},
            transport=request.transport.value,
            ranks=request.num_ranks,
            algorithm=request.algorithm,
            rows=rows,
        )
        print_json(body)
    else:
        console = stdout_console()
        console.print(_table(result))
        console.print()
        for model in result.models:
            console.print(f"{model}.", style="dim")
    wrong = sum(row.wrong or 0 for row in result.rows)
    if wrong:
        raise CheckError(f"{request.algorithm} on {request.transport}: {wrong} elements came out wrong")


def _table(result: Result) -> Table:
    columns = ["size\n(B)", "count\n(elements)", "type\n", "redop\n", "time\n(us)"]
    columns += ["algbw\n(GB/s)", "busbw\n(GB/s)", "#wrong\n"]
    columns += [HEADINGS[name] for name in result.more]
    lines = []
    for number, row in enumerate(result.rows):
        wrong = "N/A" if row.wrong is None else str(row.wrong)
        line = [str(row.size_bytes), str(row.count), row.type, row.redop, f"{row.time_us:.2f}"]
        line += [f"{row.algbw_gbs:.3f}", f"{row.busbw_gbs:.3f}", wrong]
        line += [
            f"{figures[number]:+.1f}" if name == "error_percent" else f"{figures[number]:.2f}"
            for name, figures in result.more.items()
        ]
        lines.append(line)
    return table(columns, lines, text_columns=0)
