"""``testbed scale``: how a training step scales on networks that need not exist."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import WORLD_SIZES, TimeLimit, parse_limit, parse_ranks, several
from testbed.options.assumptions import StepAssumptionOptions, inefficiencies_of
from testbed.options.command import command
from testbed.result import Result

EXAMPLES = """\b
Examples:
  testbed scale --network ethernet-25g --network my_cluster.toml --ranks 1-256x2
  testbed scale --network ethernet-25g --ranks 64 --strategy all
  testbed scale --profile my_model.json --bucket-cap-mb 50 --plot scaling.png
"""

DEFAULT_NETWORKS = ("nvlink-400g", "switch-100g", "ethernet-25g")
ALL = "all"
MAX_SIZES = 128
"""World sizes of one command."""
DEFAULT_STRATEGIES = ("after_backward", "wait_free")


@partial(command, draws="efficiency and exposed communication over ranks")
def scale(
    profile: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE,…")] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE,…", help=f"What it runs on; by default {', '.join(DEFAULT_NETWORKS)}."
        ),
    ] = None,
    ranks: Annotated[str, typer.Option(metavar="LIST", help=WORLD_SIZES)] = "1-1024x2",
    bucket_cap_mb: Annotated[float, typer.Option(metavar="MB")] = 25.0,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="Overlap strategy, such as wait_free, priority:credits=2 or FILE.py:CLASS; all; see "
            "docs/strategies.md; "
            f"by default {', '.join(DEFAULT_STRATEGIES)}.",
        ),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="NAME", show_default=False)] = None,
    strong: Annotated[bool, typer.Option("--strong")] = False,
    *,
    counts: StepAssumptionOptions,
    time_limit: TimeLimit = None,
) -> Result:
    """Predict how a training step scales.

    The reducer that trains is replayed in virtual time, with the compute times of a profile, as a real run is
    expected to be: over what it would use (NCCL where the network names GPUs, else Gloo), with what it loses
    besides, and with what the options count.

    Ctrl-C, or a time limit, ends it and shows what is there.

    Args:
        profile: What a rank computes; by default resnet50.
        bucket_cap_mb: Size of a bucket, in MiB.
        algorithm: Algorithm of the all-reduce: a name, name:key=value, FILE.py:FUNCTION; auto: the cheapest
            for each bucket; nccl: what NCCL would choose; native: what Gloo or NCCL runs. By default nccl
            where the network names GPUs, else auto.
        strong: Strong scaling: a fixed global batch, that of the fewest ranks; by default weak.
    """
    from collectives.catalogue.selectors import NATIVE, NVLS, check_choice
    from ddp.reduction.overlap import STRATEGIES, resolve_strategy
    from testbed.planning.plan import points_of_scaling, scaled
    from testbed.report.scaling import scaling_result

    if not 0 < bucket_cap_mb < float("inf"):
        raise UsageError(f"--bucket-cap-mb {bucket_cap_mb:g}: expected a number above 0")
    sizes = parse_ranks(ranks)
    if len(sizes) > MAX_SIZES:
        raise UsageError(
            f"--ranks {ranks}: {len(sizes)} world sizes, at most {MAX_SIZES} are predicted at once; "
            f"{sizes[0]}-{sizes[-1]}x2 takes twice as many each time"
        )
    wanted = several(strategy or DEFAULT_STRATEGIES, "--strategy")
    if algorithm not in (None, NATIVE, NVLS):
        check_choice(algorithm)
    networks = several(network or DEFAULT_NETWORKS, "--network")
    points = points_of_scaling(
        several(profile or ["resnet50"], "--profile"),
        networks,
        [resolve_strategy(name).name for name in (STRATEGIES if ALL in wanted else wanted)],
        sizes,
        bucket_cap_mb=bucket_cap_mb,
        algorithm=algorithm,
        asked={**counts.asked, "inefficiencies": inefficiencies_of(counts.inefficiencies)},
        strong=strong,
    )
    rows, stop = scaled(points, time_limit=parse_limit(time_limit))
    return stop.ended(scaling_result(rows, networks, counts.asked))
