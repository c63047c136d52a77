"""``testbed tune``: bucket caps, strategy and algorithm of the shortest training step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import MAX_RANKS, Network, several
from testbed.options.assumptions import StepAssumptionOptions, assumptions_json
from testbed.options.command import command
from testbed.output.table import progress, seconds
from testbed.result import Interrupted, Result
from testbed.tasks.bounds import bounded

if TYPE_CHECKING:
    from ddp.tuning.trials import Trial

EXAMPLES = """\b
Examples:
  testbed tune --profile bert-large --network dgx-a100 --ranks 64
  testbed tune --profile mine.json --network my_cluster.toml --ranks 32 --plot caps.png
  testbed tune --profile gpt2-xl --network dgx-h100 --ranks 64 --algorithm all --strategy all
"""

ALL = "all"


@partial(command, draws="the curve over the cap of buckets")
def tune(
    profile: Annotated[str, typer.Option(metavar="NAME|FILE")] = "resnet50",
    network: Network = "switch-100g",
    ranks: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_RANKS)] = 64,
    algorithm: Annotated[list[str] | None, typer.Option(metavar="LIST|all", show_default=False)] = None,
    strategy: Annotated[list[str] | None, typer.Option(metavar="LIST|all")] = None,
    *,
    counts: StepAssumptionOptions,
) -> Result:
    """Find the buckets, strategy and algorithm that make a training step shortest.

    Prints the arguments to paste into torch's DistributedDataParallel, or ours. Predicted, not measured.

    Ctrl-C ends the search and shows the best so far.

    Args:
        profile: What a rank computes; see testbed profile.
        ranks: World size.
        algorithm: All-reduce algorithms; native: what Gloo (--transport-model gloo) or NCCL (--model nccl)
            runs. torch's default is simulated with the first. By default nccl where the network names GPUs,
            else auto.
        strategy: Overlap strategies, or FILE.py:CLASS. By default wait_free.
    """
    from collectives.catalogue.resolve import algorithm_names
    from collectives.catalogue.selectors import NATIVE, NCCL, NVLS, check_choice
    from collectives.timing import default_algorithm
    from ddp.profiles import load_profile
    from ddp.reduction.overlap import STRATEGIES, resolve_strategy
    from ddp.tuning.search import Search
    from sim import load_network
    from testbed.options import evidence
    from testbed.report.tuning import model_of, tuning_result
    from testbed.studies.carriers import carriers_of

    own = load_profile(profile)
    description = load_network(network, ideal=counts.ideal)
    topology = description.topology(ranks)
    if ranks < 2:
        raise UsageError(f"--ranks {ranks}: one rank sends nothing; expected at least 2")
    first = default_algorithm(topology)
    named = several(algorithm or [first], "--algorithm")
    named = [first, *algorithm_names()] if ALL in named else named
    algorithms = dict.fromkeys(named)
    wanted = several(strategy or ["wait_free"], "--strategy")
    strategies = STRATEGIES if ALL in wanted else dict.fromkeys(wanted)
    for name in algorithms:
        if name not in (NATIVE, NVLS):
            check_choice(name)
    counted = counts.on(topology)
    search: Search
    with bounded() as stop, progress() as advance:

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
        search.run()
    if stop.by is not None and not search.started:
        raise stop.by
    found = search.result()
    travels = {
        ("all_reduce", nbytes) for trial in (found.torch, found.best) for nbytes in trial.nbytes if nbytes
    }
    carriers = carriers_of(description.name, topology, found.best.options.algorithm, counted, travels)
    proved = evidence.evidence_for(algorithms, evidence.nodes_of(topology))
    assumptions = assumptions_json(
        [network], ",".join(algorithms) if algorithm else None, counts.asked, {description.name: counted}
    )
    software = replace(counted.software.of_all(algorithms), call_overhead=0)  # launches are inefficiencies
    counts_as = replace(counted, software=software)
    if counted.model == "library" and not {NATIVE, NCCL, NVLS} & set(algorithms):
        counts_as = counts_as.with_(model="links")
    model = model_of(next(iter(algorithms)), str(counts_as))
    result = tuning_result(found, own, topology, carriers, proved, counted, assumptions, model)
    if stop.by is not None:
        raise Interrupted(result, stop.by)
    return result
