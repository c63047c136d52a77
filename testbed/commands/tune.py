"""``testbed tune``: bucket caps, strategy and algorithm of the shortest training step."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_RANKS
from testbed.options.assumptions import StepAssumptionOptions, assumptions_json
from testbed.options.groups import grouped
from testbed.output.folder import document
from testbed.output.table import progress, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from ddp.tuning.trials import Trial

EXAMPLES = """\b
Examples:
  testbed tune --profile bert-large --network dgx-a100 --ranks 64
  testbed tune --profile mine.json --network my_cluster.toml --ranks 32 --plot caps.png
  testbed tune --profile gpt2-xl --network dgx-h100 --ranks 64 --algorithm all --strategy all
"""

ALL = "all"


@reporting_errors
@grouped
def tune(
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="What a rank computes; see testbed profile.")
    ] = "resnet50",
    network: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Network: a preset or a file.")
    ] = "switch-100g",
    ranks: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_RANKS, help="World size.")] = 64,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="LIST|all",
            help="All-reduce algorithms, separated by commas; native: what Gloo (--transport-model gloo) or "
            "NCCL (--model nccl) runs. torch's own DDP is taken to run the first. By default nccl where the "
            "network names GPUs, else auto.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str, typer.Option(metavar="LIST|all", help="Overlap strategies, separated by commas.")
    ] = "wait_free",
    *,
    counts: StepAssumptionOptions,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curve too: .png, .svg or .pdf.")
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the buckets, strategy and algorithm that make a training step shortest.

    Prints the arguments to paste into torch's DistributedDataParallel, or ours. Predicted, not measured.

    Ctrl-C ends the search and shows the best so far.
    """
    from collectives.catalogue.resolve import algorithm_names
    from collectives.catalogue.selectors import NATIVE, check_choice
    from collectives.timing import default_algorithm
    from ddp.profiles import load_profile
    from ddp.reduction.overlap import STRATEGIES, resolve_strategy
    from ddp.tuning.search import Search
    from sim import load_network
    from testbed.benchmarking.candidates import split_names
    from testbed.options import evidence
    from testbed.pages import Delivery
    from testbed.report.scaling import carrier_table, faster_lines
    from testbed.report.tuning import LEGEND, model_of, paste, row_of, search_lines, tuning_tables
    from testbed.result.terminal import show_part
    from testbed.studies.carriers import carriers_of

    delivery = Delivery(as_json, html)
    delivery.check()
    own = load_profile(profile)
    description = load_network(network, ideal=counts.ideal)
    topology = description.topology(ranks)
    if ranks < 2:
        raise UsageError(f"--ranks {ranks}: one rank sends nothing; expected at least 2")
    first = default_algorithm(topology)
    named = [first, *algorithm_names()] if algorithm == ALL else split_names(algorithm or first)
    algorithms = dict.fromkeys(named)
    strategies = STRATEGIES if strategy == ALL else dict.fromkeys(split_names(strategy, "--strategy"))
    for name in algorithms:
        if name != NATIVE:
            check_choice(name)
    counted = counts.on(topology)
    search: Search
    with progress() as advance:

        def show(trial: Trial) -> None:
            best = search.result().best
            pair = f"{trial.options.algorithm}, {trial.options.strategy}"
            advance(f"{pair}; best {seconds(best.seconds)}, Ctrl-C shows it")

        search = Search(
            own,
            topology=topology,
            algorithms=list(algorithms),
            strategies=[resolve_strategy(name).name for name in strategies],
            assumptions=counted,
            advance=show,
        )
        if plot is not None:
            from testbed.output.figure import check_plot

            check_plot(plot)
        try:
            found = search.run()
        except KeyboardInterrupt:
            if not search.started:
                raise
            found = search.result()
    used = found.best.options.algorithm
    travels = {
        ("all_reduce", nbytes) for trial in (found.torch, found.best) for nbytes in trial.nbytes if nbytes
    }
    carriers = carriers_of(description.name, topology, used, counted, travels)
    proved = evidence.evidence_for(algorithms, evidence.nodes_of(topology))
    assumed = model_of(next(iter(algorithms)), str(counted))
    if plot is not None:
        from testbed.report.plots.tuning_plot import plot_tuning

        title = f"Bucket caps of {own.name} on {description.name}, {ranks} ranks"
        plot_tuning(found, plot, title=title, note=f"Simulated: {assumed}.")
    from testbed.pages.of_tuning import tuning_answer, tuning_plots

    def show_result(console: Console) -> None:
        console.print(f"{own.name} on {description.name}, {ranks} ranks\n", style="bold")
        if not found.complete:
            console.print("Interrupted: the best so far.\n", style="yellow")
        for shown in tuning_tables(found):
            console.print(shown)
            console.print()
        if (carried := carrier_table(carriers)) is not None:
            show_part(console, carried)
            console.print()
        for line in paste(found, carriers):
            console.print(line, soft_wrap=True, markup=False)
        console.print()
        for line in search_lines(found):
            console.print(line, style="dim")
        for line in faster_lines(carriers):
            console.print(f"{line}.", style="yellow", markup=False)
        reasons = {reason: (name, when) for name, when, reason in reversed(found.refused)}
        for reason, (name, when) in reversed(reasons.items()):
            console.print(f"Left out: {name}, {when}: {reason}", style="dim", markup=False)
        console.print(LEGEND, style="dim")
        console.print(f"Simulated: {assumed}.", style="dim")
        for one in proved:
            console.print(f"{one}.", style="dim", markup=False)
        console.print(f"Profile {own.name}: {own.source}; {own.device}.", style="dim")
        if plot is not None:
            console.print(f"Plot: {plot}")

    delivery.give(
        document(
            method="simulated",
            model=assumed,
            transport_model=counted.software.transport.name,
            assumptions=assumptions_json([network], algorithm, counts.asked, {description.name: counted}),
            topologies={f"{description.name} x {ranks}": topology.digest()},
            profiles=[{"name": own.name, "source": own.source, "device": own.device}],
            complete=found.complete,
            default=row_of(found, found.default),
            torch_one_cap=row_of(found, found.one_cap()),
            torch=row_of(found, found.torch),
            best=row_of(found, found.best),
            paste=paste(found, carriers),
            carriers=[asdict(carrier) for carrier in carriers],
            searches=[
                {"algorithm": pair[0], "strategy": pair[1], "search": how}
                for pair, how in found.searches.items()
            ],
            refused=[
                {"algorithm": name, "strategy": when, "reason": reason}
                for name, when, reason in found.refused
            ],
            rows=[row_of(found, trial) for trial in found.trials],
            **evidence.as_json(proved),
        ),
        show_result,
        f"Which buckets suit {own.name} on {ranks} ranks of {description.name}?",
        tuning_answer(found),
        lambda: tuning_plots(found),
    )
