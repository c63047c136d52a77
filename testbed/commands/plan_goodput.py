"""Goodput as a question of ``testbed plan``: its options, and how it is answered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

import typer

from sim import load_network
from sim.units import parse_bandwidth, parse_size
from testbed.errors import UsageError
from testbed.planning.goodput import policy
from testbed.result import Result

if TYPE_CHECKING:
    from testbed.options.planning import QuestionOptions

_DAY = 86_400.0
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class GoodputOptions:
    """Options for the goodput of a long training.

    Attributes:
        goodput: How much of a long training's time counts, with SCRIPT as its step.
        days: Length of the training.
        mtbf: Time between failures of one part, as in gpu=80000h: gpu, nic, link, node, software (by default
            as in Llama 3's training), rack; or of the whole: cluster=3h.
        recovery: After a failure: a new job; nodes that stand by; the same processes; or fewer nodes.
        restart_time: Until processes train again, without detection and loading; by default restart 600s,
            spares 180s, in-process 30s, shrink 180s.
        detection_time: Until all ranks know of a failure.
        spares: Nodes that stand by; by default there is always one.
        repair_time: Until a failed node is back.
        degraded: Nodes that are slow for a while: each one every MTBF, for TIME, steps FACTOR as long.
        checkpoint: Whether training waits for storage, or for the hosts' memory.
        checkpoint_interval: Of training between checkpoints; by default the best.
        checkpoint_bytes: Of the whole state; by default that of the script's optimizer.
        storage_bandwidth: Into storage, of all nodes together; by default 0.98 GB/s for each node.
    """

    PANEL: ClassVar = "Goodput"

    goodput: Annotated[bool, typer.Option("--goodput")] = False
    days: Annotated[float, typer.Option(min=0.01, max=3650, metavar="N")] = 30.0
    mtbf: Annotated[list[str] | None, typer.Option(metavar="PART=TIME,…")] = None
    recovery: Literal["restart", "spares", "in-process", "shrink"] = "restart"
    restart_time: Annotated[str | None, typer.Option(metavar="TIME")] = None
    detection_time: Annotated[str, typer.Option(metavar="TIME")] = f"{policy.DETECTION_SECONDS:g}s"
    spares: Annotated[int | None, typer.Option(min=0, max=100_000, metavar="N")] = None
    repair_time: Annotated[str, typer.Option(metavar="TIME")] = f"{policy.REPAIR_SECONDS / 3600:g}h"
    degraded: Annotated[str | None, typer.Option(metavar="MTBF:TIME:FACTOR")] = None
    checkpoint: policy.CheckpointKind = "sync"
    checkpoint_interval: Annotated[str | None, typer.Option(metavar="TIME")] = None
    checkpoint_bytes: Annotated[str | None, typer.Option(metavar="SIZE")] = None
    storage_bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None

    def mtbf_hours(self) -> dict[str, float]:
        """Return the hours between failures that are given, by part.

        Raises:
            UsageError: one cannot be read.
        """
        found = {}
        for text in (own for given in self.mtbf or () for own in given.split(",")):
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--mtbf {text}: expected PART=TIME, such as gpu=80000h")
            found[name.strip()] = parse_time(value, "--mtbf") / 3600
        return found

    def degraded_nodes(self) -> policy.Degraded | None:
        """Return what makes nodes slow; None: nothing.

        Raises:
            UsageError: it cannot be read.
        """
        if self.degraded is None:
            return None
        words = self.degraded.split(":")
        try:
            if len(words) != 3 or not 1 < float(words[2]) <= 1000:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--degraded {self.degraded}: expected MTBF:TIME:FACTOR with a factor above 1, such as "
                "5000h:2h:1.2"
            ) from None
        mtbf, seconds = (parse_time(word, "--degraded") for word in words[:2])
        return policy.Degraded(mtbf / 3600, seconds, float(words[2]))


def parse_time(text: str, option: str) -> float:
    """Return seconds: a number with s, min, h or d behind it, above 0; ``inf`` is for ever.

    Raises:
        UsageError: it is none.
    """
    plain = text.strip()
    unit = next((name for name in sorted(_UNITS, key=len, reverse=True) if plain.endswith(name)), "")
    try:
        if plain == "inf":
            return float("inf")
        seconds = float(plain.removesuffix(unit)) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e15:
        raise UsageError(
            f"{option} {text}: expected a time above 0 with its unit: {', '.join(_UNITS)}, such as 10min"
        )
    return seconds


def goodput_of(
    script: Path | None, arguments: list[str], asked: QuestionOptions, options: GoodputOptions
) -> Result:
    """Return the goodput of a training with *script* as its step.

    Raises:
        UsageError: something is not said, or cannot be read.
    """
    from testbed.planning.goodput.study import Goodput, at_best_interval
    from testbed.planning.layouts.search import device_of
    from testbed.planning.scripts import train
    from testbed.report.goodput import goodput_result

    if script is None or script.suffix != ".py":
        raise UsageError(
            "--goodput: expected the script that is trained, such as train.py, behind the options"
        )
    beside = "--device", "--tokens-per-rank", "--train-tokens", "--price-per-gpu-hour"
    name, num_ranks = asked.place("--goodput", *beside)
    topology = load_network(name).topology(num_ranks)
    num_nodes = -(-num_ranks // topology.ranks_per_node)
    recovery, kind = options.recovery, options.checkpoint
    given, interval = options.restart_time, options.checkpoint_interval
    known = None if options.checkpoint_bytes is None else float(parse_size(options.checkpoint_bytes))
    unknown = _checkpoints(known or 0.0, num_ranks, num_nodes, options)
    setting = policy.Setting(
        policy.parts_of(num_ranks, topology.ranks_per_node, options.mtbf_hours()),
        num_nodes,
        unknown[kind],
        interval_seconds=_DAY if interval is None else parse_time(interval, "--checkpoint-interval"),
        recovery=recovery,
        restart_seconds=policy.RESTARTS[recovery] if given is None else parse_time(given, "--restart-time"),
        detection_seconds=parse_time(options.detection_time, "--detection-time"),
        spares=options.spares,
        repair_seconds=parse_time(options.repair_time, "--repair-time"),
        degraded=options.degraded_nodes(),
    )
    if not math.isfinite(setting.interval_seconds):
        raise UsageError(f"--checkpoint-interval {interval}: expected a time that ends")
    asked.content()  # raises what is wrong with the price before the run
    compute = device_of(name, topology, asked.device or "")
    trained = train(str(script), arguments, network=name, ranks=num_ranks, compute=compute, state_bytes=known)
    checkpoints = _checkpoints(trained.state_bytes, num_ranks, num_nodes, options)
    setting = replace(setting, checkpoint=checkpoints[kind])
    if interval is None:
        setting = at_best_interval(setting)
    what = " ".join([str(script), *arguments])
    training = Goodput(setting, options.days * _DAY)
    return goodput_result(what, (name, num_ranks), asked, trained, training, checkpoints, kind)


def _checkpoints(
    state_bytes: float, num_ranks: int, num_nodes: int, options: GoodputOptions
) -> dict[str, policy.Checkpoint]:
    rate = options.storage_bandwidth
    storage = (
        policy.STORAGE_PER_NODE * num_nodes if rate is None else parse_bandwidth(rate, "storage_bandwidth")
    )
    return {
        kind: policy.Checkpoint.of(state_bytes, kind, num_ranks=num_ranks, storage_bandwidth=storage)
        for kind in get_args(policy.CheckpointKind)
    }
