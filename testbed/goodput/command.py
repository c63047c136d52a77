"""Goodput as options ask for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.goodput.parts import parts_of
from testbed.goodput.policy import RESTARTS, STORAGE_PER_NODE, Checkpoint, Setting
from testbed.goodput.script import train
from testbed.goodput.study import Goodput, at_best_interval
from testbed.options.arguments import parse_ranks
from testbed.options.goodput import GoodputOptions, parse_time
from testbed.report.goodput import Work, goodput_result

if TYPE_CHECKING:
    from testbed.options.planning import QuestionOptions
    from testbed.result import Result

_DAY = 86_400.0


def goodput_of(
    script: Path | None, arguments: list[str], asked: QuestionOptions, options: GoodputOptions
) -> Result:
    """Return the goodput of a training with *script* as its step.

    Raises:
        UsageError: something is not said, or cannot be read.
    """
    from sim import load_network
    from sim.units import parse_size

    name, num_ranks = _where(script, asked)
    assert script is not None
    topology = load_network(name).topology(num_ranks)
    num_nodes = -(-num_ranks // topology.ranks_per_node)
    recovery, kind = options.recovery.value, options.checkpoint.value
    given, interval = options.restart_time, options.checkpoint_interval
    known = None if options.checkpoint_bytes is None else float(parse_size(options.checkpoint_bytes))
    unknown = _checkpoints(known or 0.0, num_ranks, num_nodes, options)
    setting = Setting(
        parts_of(num_ranks, topology.ranks_per_node, options.mtbf_hours()),
        num_nodes,
        unknown[kind],
        interval_seconds=_DAY if interval is None else parse_time(interval, "--checkpoint-interval"),
        recovery=recovery,
        restart_seconds=RESTARTS[recovery] if given is None else parse_time(given, "--restart-time"),
        detection_seconds=parse_time(options.detection_time, "--detection-time"),
        spares=options.spares,
        repair_seconds=parse_time(options.repair_time, "--repair-time"),
        degraded=options.degraded_nodes(),
    )
    if not math.isfinite(setting.interval_seconds):
        raise UsageError(f"--checkpoint-interval {interval}: expected a time that ends")
    price = _price(asked)

    compute = _compute(name, asked.device)
    trained = train(str(script), arguments, network=name, ranks=num_ranks, compute=compute, state_bytes=known)
    checkpoints = _checkpoints(trained.state_bytes, num_ranks, num_nodes, options)
    setting = replace(setting, checkpoint=checkpoints[kind])
    if interval is None:
        setting = at_best_interval(setting)
    work = Work(
        " ".join([str(script), *arguments]),
        name,
        num_ranks,
        asked.tokens_per_rank,
        asked.train_tokens,
        price,
    )
    training = Goodput(setting, options.days * _DAY)
    return goodput_result(work, trained, training, checkpoints, kind)


def _where(script: Path | None, asked: QuestionOptions) -> tuple[str, int]:
    """Return the network and the number of ranks, of which there is one each.

    Raises:
        UsageError: there are none or several, or something is asked that has no goodput.
    """
    if script is None or script.suffix != ".py":
        raise UsageError(
            "--goodput: expected the script that is trained, such as train.py, behind the options"
        )
    given = {"profile": asked.profile, "collective": asked.collective, "set": asked.set_}
    for option, value in given.items():
        if value:
            raise UsageError(f"--{option} and --goodput ask different things: leave one out")
    if len(asked.network or ()) != 1 or asked.network is None:
        raise UsageError("--goodput: expected one network, as --network NAME|FILE")
    counts = parse_ranks(asked.ranks) if asked.ranks is not None else []
    if len(counts) != 1:
        raise UsageError("--goodput: expected one number of ranks, as --ranks 1024")
    return asked.network[0], counts[0]


def _compute(network: str, device: str | None) -> str:
    """Return the device that computes: what is asked for, else what the network says.

    Raises:
        UsageError: neither says.
    """
    from sim.files.device_file import device_of
    from sim.topology.files.network_file import read_network

    if device is not None:
        return device
    hardware = read_network(network).hardware
    if hardware is None:
        raise UsageError(f"{network} does not say what GPUs it has; give --device, such as h100")
    return device_of(hardware)[0]


def _checkpoints(
    state_bytes: float, num_ranks: int, num_nodes: int, options: GoodputOptions
) -> dict[str, Checkpoint]:
    from sim.units import parse_bandwidth

    rate = options.storage_bandwidth
    storage = STORAGE_PER_NODE * num_nodes if rate is None else parse_bandwidth(rate, "storage_bandwidth")
    return {
        "sync": Checkpoint.of(state_bytes, "sync", num_ranks=num_ranks, storage_bandwidth=storage),
        "async": Checkpoint.of(state_bytes, "async", num_ranks=num_ranks, storage_bandwidth=storage),
    }


def _price(asked: QuestionOptions) -> float | None:
    texts = asked.price_per_gpu_hour or []
    if not texts:
        return None
    try:
        return float(texts[-1].rpartition("=")[2])
    except ValueError:
        raise UsageError(f"--price-per-gpu-hour {texts[-1]}: expected a number") from None
