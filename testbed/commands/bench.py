"""``testbed bench``: the columns of nccl-tests, simulated or measured, or algorithms side by side."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectives.formats.whole_file import write_whole
from testbed.benchmarking.benchmark import (
    BenchRequest,
    Result,
    TransportName,
    measured,
    simulate_rows,
    simulated,
    spell,
)
from testbed.benchmarking.candidates import NATIVE, Refusal, choose_candidates
from testbed.benchmarking.measure import ITEM_SIZES, Row, count_of, size_of
from testbed.benchmarking.measured_run import measure_processes, measure_threads
from testbed.errors import CheckError, UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_COUNT, parse_ranks, parse_sizes
from testbed.options.assumptions import CollectiveAssumptionOptions, assumptions_json
from testbed.options.cluster import DEFAULT_NETWORK
from testbed.options.groups import grouped
from testbed.output.figure import check_plot
from testbed.output.folder import check_writable
from testbed.output.table import progress, spell_size, stdout_console
from testbed.pages import Delivery
from testbed.report.bench import bench_document, print_bench, title
from testbed.scripts.launch import RankExitError, launch, own_module
from testbed.truth.comparison import with_simulation

if TYPE_CHECKING:
    from sim import Topology
    from testbed.truth.calibration.calibration import Calibration

EXAMPLES = """\b
Examples:
  testbed bench --transport sim --ranks 64 --network switch-100g
  testbed bench --ranks 64 --algorithm all --plot times.png --save times.json
  testbed bench --transport gloo --collective all_gather --algorithm ring,bruck,native
  testbed bench --transport gloo --ranks 4 --sizes 4K-16M --compare
  torchrun --nproc-per-node 4 --no-python testbed bench --transport nccl
"""

DEFAULT_RANKS = 4


@reporting_errors
@grouped
def bench(
    transport: Annotated[
        TransportName,
        typer.Option(
            help="sim: virtual time; threads: of one process; shm, gloo, nccl: processes, real time. shm is "
            "memory that the ranks of one host share; its native is Gloo's."
        ),
    ] = TransportName.SIM,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"World size; by default {DEFAULT_RANKS}, under torchrun its own."),
    ] = None,
    collective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all.",
        ),
    ] = "all_reduce",
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Names, name:key=value, FILE.py:FUNCTION, FILE.xml, FILE.json; native: the vendor's own; "
            "all: those that ship; auto (sim) or auto:table=FILE: the best for each size. By default the "
            "collective's own default.",
        ),
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(metavar="LIST", help="4K-64M (times --factor), or a list: 4K,1M; K, M, G are 2^10, …"),
    ] = "4K-64M",
    factor: Annotated[int, typer.Option(metavar="N", max=MAX_COUNT, help="Step of a range of sizes.")] = 2,
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
    *,
    counts: CollectiveAssumptionOptions,
    payload: Annotated[
        bool,
        typer.Option("--payload", help="sim: carry real tensors too, and check them (takes memory for all)."),
    ] = False,
    registered: Annotated[
        bool,
        typer.Option(
            "--registered",
            help="shm: tensors in memory that the ranks share, as Communicator.zeros returns it and DDP's "
            "buckets have it; -R of nccl-tests.",
        ),
    ] = False,
    iterations: Annotated[
        int, typer.Option(metavar="N", min=1, max=MAX_COUNT, help="Timed calls of each size.")
    ] = 20,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, max=MAX_COUNT, help="Calls before them.")] = 5,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a collective may wait for its peers.")
    ] = 60.0,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Where ranks that are processes meet; by default one that is free."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw time over size: .png, .svg or .pdf.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JSON too.")] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Time a collective in the columns of nccl-tests, or compare algorithms.

    The payload is of integers and checked on every rank; a wrong element ends with exit code 1.

    Several algorithms are measured in turns, size by size, and the fastest at each size is marked.

    shm, gloo and nccl start their own processes, or join those of torchrun.
    """
    joined = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    num_ranks = _num_ranks(ranks, joined)
    collective = collective.replace("-", "_")
    if timeout <= 0:
        raise UsageError(f"--timeout {timeout:g}: expected a number of seconds above 0")
    if compare and transport is TransportName.SIM:
        raise UsageError(
            "--compare puts simulated beside measured: choose --transport threads, shm, gloo or nccl"
        )
    for name in (name for name, value in counts.asked.items() if value is not None):
        if transport is not TransportName.SIM:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is for --transport sim; over {transport} what is there counts")
    if payload and transport is not TransportName.SIM:
        raise UsageError(f"--payload is for --transport sim; over {transport} the payload always travels")
    if compare and num_ranks == 1:
        raise UsageError("--compare needs at least 2 ranks: one rank sends nothing")
    if registered and transport is not TransportName.SHM:
        raise UsageError(f"--registered is for --transport shm; over {transport} there is no such memory")
    if network is not None and transport is not TransportName.SIM and not compare:
        raise UsageError(f"--network is simulated, {transport} is not: add --compare, or use --transport sim")
    topology = (
        _topology(network, num_ranks, counts.ideal) if network or transport is TransportName.SIM else None
    )
    assumed = None if transport is not TransportName.SIM or topology is None else counts.on(topology)
    candidates, refusals = choose_candidates(
        algorithm,
        collective,
        num_ranks,
        ranks_per_node=_ranks_per_node(
            topology if transport is TransportName.SIM else None, num_ranks, joined
        ),
        native=transport.is_of_processes
        or (assumed is not None and assumed.software.transport.name == "gloo"),
        transport=transport.value,
    )
    if compare and candidates[0].algorithm is None and candidates[0].name != NATIVE:
        raise UsageError("--compare puts simulated beside measured for one algorithm, and auto is several")
    if compare and len(candidates) > 1:
        raise UsageError(
            f"--compare puts simulated beside measured for one algorithm; {len(candidates)} are named"
        )
    elements = tuple(
        dict.fromkeys(count_of(size, dtype, collective, num_ranks) for size in parse_sizes(sizes, factor))
    )
    if payload or transport is not TransportName.SIM:
        num_payloads = len(candidates) if registered else 1
        _check_memory(collective, dtype, max(elements), num_ranks, joined, num_payloads)
    delivery = Delivery(as_json, html)
    delivery.check()
    if plot is not None:
        check_plot(plot)
    if save is not None:
        check_writable(save)
    assumptions = (
        None
        if assumed is None or topology is None
        else assumptions_json([network or DEFAULT_NETWORK], algorithm, counts.asked, {topology.name: assumed})
    )
    request = BenchRequest(
        transport, num_ranks, collective, tuple(candidates), elements, dtype, iterations, warmup, timeout,
        assumed, assumptions, registered,
    )  # fmt: skip

    if transport.is_of_processes and not joined:
        _launch(num_ranks, port)
        return
    if transport is TransportName.SIM:
        assert topology is not None
        result = _simulate(request, refusals, topology, payload, quiet=as_json)
    else:
        taken = measure_threads(request) if transport is TransportName.THREADS else _as_process(request)
        if taken is None:
            return
        result = measured(request, taken[0], refusals + taken[1])
        if compare:
            result = with_simulation(result, request, topology, _calibration_of(network))
    if not result.rows:
        raise UsageError(f"nothing was measured: {'; '.join(map(str, result.refusals))}")
    _report(request, result, delivery, save=save, plot=plot)


def _num_ranks(ranks: int | None, joined: bool) -> int:
    if joined:
        world_size = int(os.environ["WORLD_SIZE"])
        if ranks not in (None, world_size):
            raise UsageError(f"--ranks {ranks}, but torchrun has started {world_size}; leave --ranks out")
        return world_size
    return parse_ranks(str(DEFAULT_RANKS if ranks is None else ranks))[0]


def _topology(network: str | None, num_ranks: int, ideal: bool) -> Topology:
    from sim import load_network

    return load_network(network or DEFAULT_NETWORK, ideal=ideal).topology(num_ranks)


def _calibration_of(network: str | None) -> Calibration | None:
    """Return the calibration that the file *network* holds, if it is one that holds any."""
    from sim import load_network
    from testbed.truth.calibration.calibration import Calibration

    if network is None or not load_network(network).fields.calibration:
        return None
    return Calibration.read(Path(network))


def _ranks_per_node(topology: Topology | None, num_ranks: int, joined: bool) -> int:
    """Return how many ranks share a node: of the network, or else of this machine."""
    if topology is not None:
        return topology.ranks_per_node
    return int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks)) if joined else num_ranks


def _check_memory(
    collective: str, dtype: str, count: int, num_ranks: int, joined: bool, num_payloads: int
) -> None:
    """Refuse payloads that the ranks of this machine cannot hold: each has buffers, and a copy of one.

    Raises:
        UsageError: it is larger than the memory of the machine.
    """
    here = int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks)) if joined else num_ranks
    nbytes = size_of(count, dtype, collective, num_ranks)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (num_payloads + 1) * here * nbytes > memory:
        raise UsageError(
            f"--sizes: {spell_size(nbytes)} with a copy of it on each of {here} ranks does not fit into the "
            f"{spell_size(memory)} of this machine"
        )


def _launch(num_ranks: int, port: int | None) -> None:
    """Run this very command once per rank, as torchrun would; rank 0 prints."""
    try:
        launch([*own_module("testbed"), *sys.argv[1:]], num_ranks, port=port)
    except RankExitError as error:
        if not error.said:
            raise
        raise typer.Exit(error.exit_code) from None


def _as_process(request: BenchRequest) -> tuple[list[Row], list[Refusal]] | None:
    """Measure as one of the processes, which meet on the loopback if that is where they were sent."""
    from testbed.scripts.loopback import listen_on_loopback

    listen_on_loopback()
    return measure_processes(request)


def _simulate(
    request: BenchRequest, refusals: list[Refusal], topology: Topology, payload: bool, *, quiet: bool
) -> Result:
    """Simulate; when interrupted, print what there is unless *quiet*."""
    rows: list[Row] = []
    refused = list(refusals)
    try:
        with progress(len(request.counts) * len(request.candidates)) as advance:
            for item in simulate_rows(request, topology, payload, advance):
                if isinstance(item, Refusal):
                    refused.append(item)
                else:
                    rows.append(item)
    except KeyboardInterrupt:
        if rows and not quiet:
            print_bench(stdout_console(), request, simulated(request, rows, refused, topology, payload))
        raise
    return simulated(request, rows, refused, topology, payload)


def _report(
    request: BenchRequest, result: Result, delivery: Delivery, *, save: Path | None, plot: Path | None
) -> None:
    from testbed.pages.of_bench import bench_answer, bench_plots

    body = bench_document(request, result)
    if save is not None:
        write_whole(save, json.dumps(body, indent=2, allow_nan=False) + "\n")
    if plot is not None:
        from testbed.report.plots.size_plot import plot_times

        note = "; ".join(result.models)
        plot_times(result.rows, plot, title=title(request, result), note=f"{note}.")
    delivery.give(
        body,
        lambda console: print_bench(console, request, result),
        title(request, result),
        bench_answer(result.rows),
        lambda: bench_plots(result.rows),
    )
    if not delivery.as_json:
        for what, path in (("Plot", plot), ("Result", save)):
            if path is not None:
                print(f"{what}: {path}")
    wrong = {row.algorithm: 0 for row in result.rows if row.wrong}
    for row in result.rows:
        if row.wrong:
            wrong[row.algorithm] += row.wrong
    if wrong:
        counted = ", ".join(f"{name}: {count} elements" for name, count in wrong.items())
        raise CheckError(f"{spell(request.collective)} over {request.transport} came out wrong; {counted}")
