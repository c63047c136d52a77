"""``testbed bench``: the columns of nccl-tests, simulated or measured, or algorithms side by side."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectives.catalogue.selectors import NVLS
from collectives.formats.whole_file import write_whole
from collectives.timing import Assumptions
from sim import load_network
from testbed.benchmarking.benchmark import measured, simulate_rows, simulated
from testbed.benchmarking.candidates import (
    ALL,
    CONNECT,
    BenchRequest,
    Refusal,
    TransportName,
    choose_candidates,
)
from testbed.benchmarking.measure import Row
from testbed.benchmarking.payload import ITEM_SIZES, count_of, size_of
from testbed.errors import UsageError
from testbed.options.arguments import MAX_COUNT, Port, SizeFactor, parse_ranks, parse_sizes, split_names
from testbed.options.assumptions import CollectiveAssumptionOptions, assumptions_json
from testbed.options.cluster import DEFAULT_NETWORK
from testbed.options.command import command
from testbed.options.groups import refuse
from testbed.output.table import progress, spell_size
from testbed.report.bench import bench_result
from testbed.result import Result
from testbed.scripts.launch import joined, joined_ranks, ranks_here
from testbed.tasks.bounds import Stop, bounded

if TYPE_CHECKING:
    from testbed.calibration.live.calibration import Calibration

EXAMPLES = """\b
Examples:
  testbed bench --transport sim --ranks 64 --network switch-100g
  testbed bench --ranks 64 --algorithm all --plot times.png --output times.json
  testbed bench --transport gloo --collective all_gather --algorithm ring,bruck,native
  testbed bench --transport gloo --ranks 4 --nbytes 4K-16M --compare
  torchrun --nproc-per-node 4 --no-python testbed bench --transport nccl
"""

DEFAULT_RANKS = 4


@partial(command, draws="time over size")
def bench(
    transport: TransportName = TransportName.SIM,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"World size; by default {DEFAULT_RANKS}, under torchrun its own."),
    ] = None,
    collective: Annotated[str, typer.Option(metavar="NAME")] = "all_reduce",
    algorithm: Annotated[str | None, typer.Option(metavar="LIST")] = None,
    nbytes: Annotated[str, typer.Option(metavar="LIST")] = "4K-64M",
    factor: SizeFactor = 2,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help=f"One of {', '.join(ITEM_SIZES)}.")] = "float32",
    network: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help=f"Network to simulate; by default {DEFAULT_NETWORK}."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare")] = False,
    *,
    counts: CollectiveAssumptionOptions,
    payload: Annotated[bool, typer.Option("--payload")] = False,
    registered: Annotated[bool, typer.Option("--registered")] = False,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_COUNT)] = 20,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, max=MAX_COUNT)] = 5,
    timeout: Annotated[float, typer.Option(metavar="SECONDS")] = 60.0,
    port: Port = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
) -> Result:
    """Time a collective in the columns of nccl-tests, or compare algorithms.

    The payload is of integers and checked on every rank; a wrong element ends with exit code 1.

    Several algorithms are measured in turns, size by size, and the fastest at each size is marked.

    shm, gloo and nccl start their own processes, or join those of torchrun.

    Args:
        transport: sim: virtual time; threads: of one process; shm, gloo, nccl: processes, real time. shm is
            memory that the ranks of one host share; native there is Gloo's own.
        collective: all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, all_to_all.
        algorithm: Names, name:key=value, FILE.py:FUNCTION, FILE.xml, FILE.json; native: the vendor's own;
            all: those that ship; auto (sim) or auto:table=FILE: the best for each size. By default the
            collective's own default; over shm connect, what collectives.connect() takes for each size.
        nbytes: 4K-64M (times --factor), or a list: 4K,1M; K, M, G are 2^10, …
        compare: Simulated beside measured; without --network, on a switch fitted to this very run.
        payload: sim: carry real tensors too, and check them (takes memory for all).
        registered: shm: tensors in memory that the ranks share, as Communicator.zeros returns it and DDP's
            buckets have it; -R of nccl-tests.
        iterations: Timed calls of each size.
        warmup: Calls before them.
        timeout: How long a collective may wait for its peers.
        output: Write the result as JSON too.
    """
    num_ranks = joined_ranks(ranks) or parse_ranks(str(DEFAULT_RANKS if ranks is None else ranks))[0]
    collective = collective.replace("-", "_")
    is_simulated = transport is TransportName.SIM
    if timeout <= 0:
        raise UsageError(f"--timeout {timeout:g}: expected a number of seconds above 0")
    _check_transport(transport, counts, payload=payload, registered=registered)
    _check_comparison(transport, num_ranks, network, compare=compare)
    topology = None
    if network or is_simulated:
        topology = load_network(network or DEFAULT_NETWORK, ideal=counts.ideal).topology(num_ranks)
    assumed = counts.on(topology) if is_simulated and topology is not None else None
    candidates, refusals = choose_candidates(
        algorithm,
        collective,
        num_ranks,
        ranks_per_node=topology.ranks_per_node if is_simulated and topology else ranks_here(num_ranks),
        native=transport.is_of_processes
        or (assumed is not None and (assumed.model != "links" or assumed.software.transport.name == "gloo")),
        transport=transport.value,
        by_formula=() if assumed is None or payload else _by_formula(algorithm, assumed),
    )
    is_auto = candidates[0].chooses and candidates[0].name != CONNECT
    if compare and (len(candidates) > 1 or is_auto):
        several = f"{len(candidates)} are named" if len(candidates) > 1 else "auto is several"
        raise UsageError(f"--compare puts simulated beside measured for one algorithm; {several}")
    elements = tuple(
        dict.fromkeys(count_of(size, dtype, collective, num_ranks) for size in parse_sizes(nbytes, factor))
    )
    if payload or not is_simulated:
        num_payloads = len(candidates) if registered else 1
        _check_memory(collective, dtype, max(elements), num_ranks, num_payloads)
    assumptions = (
        None
        if assumed is None or topology is None
        else assumptions_json([network or DEFAULT_NETWORK], algorithm, counts.asked, {topology.name: assumed})
    )
    request = BenchRequest(
        transport, num_ranks, collective, tuple(candidates), elements, dtype, iterations, warmup, timeout,
        assumed, assumptions, registered,
    )  # fmt: skip

    stop = Stop()
    if is_simulated:
        assert topology is not None
        rows, number = list[Row](), len(request.counts) * len(request.candidates)
        with bounded() as stop, progress(number) as advance:
            for item in simulate_rows(request, topology, payload, advance):
                if isinstance(item, Refusal):
                    refusals.append(item)
                else:
                    rows.append(item)
        stop.check(rows, number, "row")
        timings = simulated(request, rows, refusals, topology, payload)
    else:
        rows, more = _measure(request, algorithm, port)
        timings = measured(request, rows, refusals + more)
        if compare:
            from testbed.calibration.live.comparison import with_simulation

            timings = with_simulation(timings, request, topology, _calibration_of(network))
    if not timings.rows:
        raise UsageError(f"nothing was measured: {'; '.join(map(str, timings.refusals))}")
    result = stop.ended(bench_result(request, timings))
    if output is None:
        return result
    write_whole(output, json.dumps(result.document(), indent=2, allow_nan=False) + "\n")
    return replace(result, files={"Result": output})


def _by_formula(algorithm: str | None, assumed: Assumptions) -> list[str]:
    """Return the names that a closed form times, without a program."""
    if assumed.model in ("nccl", "measured"):
        return [name for name in split_names(algorithm or "") if name != ALL]
    return [NVLS]


def _check_transport(
    transport: TransportName, counts: CollectiveAssumptionOptions, *, payload: bool, registered: bool
) -> None:
    """Refuse options that mean nothing over *transport*."""
    if registered and transport is not TransportName.SHM:
        raise UsageError(f"--registered is for --transport shm; over {transport} there is no such memory")
    if transport is TransportName.SIM:
        return
    counted = {f"--{name.replace('_', '-')}": value for name, value in counts.asked.items()}
    refuse(counted, f"{{}} is for --transport sim; over {transport} what is there counts")
    if payload:
        raise UsageError(f"--payload is for --transport sim; over {transport} the payload always travels")


def _check_comparison(
    transport: TransportName, num_ranks: int, network: str | None, *, compare: bool
) -> None:
    """Refuse a comparison with nothing to compare, and a network that nothing is compared with."""
    if compare and transport is TransportName.SIM:
        raise UsageError(
            "--compare puts simulated beside measured: choose --transport threads, shm, gloo or nccl"
        )
    if compare and num_ranks == 1:
        raise UsageError("--compare needs at least 2 ranks: one rank sends nothing")
    if network is not None and transport is not TransportName.SIM and not compare:
        raise UsageError(f"--network is simulated, {transport} is not: add --compare, or use --transport sim")


def _calibration_of(network: str | None) -> Calibration | None:
    """Return the calibration that the file *network* holds, if it is one that holds any."""
    from testbed.calibration.live.calibration import Calibration

    if network is None or not load_network(network).fields.calibration:
        return None
    return Calibration.read(Path(network))


def _check_memory(collective: str, dtype: str, count: int, num_ranks: int, num_payloads: int) -> None:
    """Refuse payloads that the ranks of this machine cannot hold: each has buffers, and a copy of one."""
    here = ranks_here(num_ranks)
    nbytes = size_of(count, dtype, collective, num_ranks)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (num_payloads + 1) * here * nbytes > memory:
        raise UsageError(
            f"--nbytes: {spell_size(nbytes)} with a copy of it on each of {here} ranks does not fit into the "
            f"{spell_size(memory)} of this machine"
        )


def _measure(
    request: BenchRequest, algorithm: str | None, port: int | None
) -> tuple[list[Row], list[Refusal]]:
    """Measure: on threads, on processes that are started, or as one of those of torchrun."""
    from testbed.benchmarking.measured_run import measure_on_ranks, measure_processes, measure_threads

    if request.transport is TransportName.THREADS:
        return measure_threads(request)
    if not joined():
        return measure_on_ranks(request, algorithm, port)
    taken = measure_processes(request)
    if taken is None:
        raise typer.Exit
    return taken
