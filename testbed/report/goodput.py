"""Goodput of a training: the answer, where its time goes, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.output.table import counted, percent, seconds
from testbed.planning.goodput.policy import SOURCE, Checkpoint
from testbed.planning.goodput.script import Trained
from testbed.planning.goodput.study import RUNS, Goodput
from testbed.result import Facts, Grid, Part, Result, Rows, Text, asked, found, quiet

COLUMNS = (*asked("cause"), *found("seconds_lost", "fraction"))
OF_PARTS = (*asked("part", "count", "mtbf_hours", "source"), *found("interruptions"))
OF_POLICIES = (*asked("recovery", "checkpoint"), *found("goodput", "interval_seconds", "method"))
OF_GAINS = (*asked("change"), *found("goodput", "gain"))

MODEL = (
    "Failures come at any time, without memory, also in outages; after one, training goes on from the last "
    "checkpoint that is safe; a checkpoint takes what its bytes take at the rate of storage"
)
_DAY = 86_400.0


@dataclass(frozen=True)
class Work:
    """What a training is for.

    Attributes:
        name: of the script, with its arguments.
        network: its name.
        num_ranks: GPUs.
        tokens_per_rank: tokens of a step on one rank; None: not said.
        train_tokens: tokens of the whole training; None: not said.
        price_per_gpu_hour: in a currency; None: not said.
    """

    name: str
    network: str
    num_ranks: int
    tokens_per_rank: float | None = None
    train_tokens: float | None = None
    price_per_gpu_hour: float | None = None


def goodput_result(
    work: Work, trained: Trained, training: Goodput, checkpoints: Mapping[str, Checkpoint], kind: str
) -> Result:
    """Return the goodput of *training*, with the steps of *trained*.

    Args:
        work: what the training is for.
        trained: its step, and its state.
        training: the run that is asked for.
        checkpoints: of either kind.
        kind: of checkpoint that is asked for.
    """
    setting, fraction = training.setting, training.fraction
    low, high = training.bounds
    gains: list[dict[str, Any]] = [
        {"change": name, "goodput": own.fraction, "gain": own.fraction - fraction}
        for name, own in training.alternatives()
    ]
    gains.sort(key=lambda row: -row["gain"])
    policies = [
        {
            "recovery": recovery,
            "checkpoint": of_kind,
            "goodput": own.fraction,
            "interval_seconds": own.setting.interval_seconds,
            "method": own.method,
        }
        for recovery, of_kind, own in training.policies(dict(checkpoints))
    ]
    body = {
        "goodput": fraction,
        "low": low,
        "high": high,
        "interruptions": training.interruptions,
        "seconds": training.seconds,
        "seconds_lost": training.lost,
        "interval_seconds": setting.interval_seconds,
        "step_seconds": trained.step_seconds,
        "checkpoint_bytes": setting.checkpoint.nbytes,
        "checkpoint_seconds": setting.checkpoint.stall_seconds,
        "outage_seconds": setting.outage_seconds,
        "fits": trained.fits,
        **_of_tokens(work, trained, fraction),
    }
    return Result(
        question=f"What comes of {training.seconds / _DAY:g} days of {work.name} on {work.num_ranks} ranks "
        f"of {work.network}?",
        answer=_answer(training, low, high),
        method=training.method,
        model=MODEL,
        seed=training.seed,
        assumptions=_assumptions(training, kind),
        rows=Rows(COLUMNS, _rows(training)),
        tables={
            "parts": Rows(OF_PARTS, _parts_rows(training)),
            "policies": Rows(OF_POLICIES, policies),
            "gains": Rows(OF_GAINS, gains),
        },
        body=body,
        parts=list(_parts(training, trained, body, policies, gains)),
    )


def _answer(training: Goodput, low: float, high: float) -> str:
    lost = next(iter(training.lost.items()), None)
    most = f"; most is lost to {lost[0]}, {percent(lost[1] / training.seconds)}" if lost else ""
    return (
        f"{percent(training.fraction)} of the time counts ({percent(low)} to {percent(high)} in nine of ten "
        f"runs), with {counted(round(training.interruptions), 'interruption')}{most}."
    )


def _rows(training: Goodput) -> list[dict[str, Any]]:
    return [
        {"cause": cause, "seconds_lost": lost, "fraction": lost / training.seconds}
        for cause, lost in training.lost.items()
    ]


def _parts_rows(training: Goodput) -> list[dict[str, Any]]:
    times = training.failures()
    parts = {part.name: part for part in training.setting.parts}
    return [
        {
            "part": name,
            "count": parts[name].count,
            "mtbf_hours": parts[name].mtbf_hours,
            "source": parts[name].source,
            "interruptions": interruptions,
        }
        for name, interruptions in times.items()
    ]


def _of_tokens(work: Work, trained: Trained, fraction: float) -> dict[str, Any]:
    """Return tokens per second, days and cost, as far as somebody says what they depend on."""
    rate = None
    if work.tokens_per_rank is not None:
        rate = work.tokens_per_rank * work.num_ranks / trained.step_seconds * fraction
    days = None
    if rate and work.train_tokens is not None:
        days = work.train_tokens / rate / _DAY
    cost = None
    if days is not None and work.price_per_gpu_hour is not None:
        cost = days * 24 * work.num_ranks * work.price_per_gpu_hour
    return {"tokens_per_second": rate, "days": days, "cost": cost}


def _assumptions(training: Goodput, kind: str) -> dict[str, Any]:
    setting = training.setting
    degraded = setting.degraded
    return {
        "mtbf_hours": {part.name: part.mtbf_hours for part in setting.parts},
        "recovery": setting.recovery,
        "checkpoint": kind,
        "detection_seconds": setting.detection_seconds,
        "restart_seconds": setting.restart_seconds,
        "repair_seconds": setting.repair_seconds,
        "spares": setting.spares,
        "degraded": degraded
        and {"mtbf_hours": degraded.mtbf_hours, "seconds": degraded.seconds, "slowdown": degraded.slowdown},
    }


def _parts(
    training: Goodput,
    trained: Trained,
    body: Mapping[str, Any],
    policies: list[dict[str, Any]],
    gains: list[dict[str, Any]],
) -> Iterator[Part]:
    setting = training.setting
    yield Text([_answer(training, body["low"], body["high"])], wrap=True)
    if not trained.fits:
        yield Text([f"The script {trained.memory}."], tone="warning", wrap=True)
    facts = {
        "step": seconds(trained.step_seconds),
        "checkpoint": f"{setting.checkpoint.nbytes / 1e9:,.1f} GB, "
        f"{seconds(setting.checkpoint.stall_seconds)} every {seconds(setting.interval_seconds)}",
        "outage": f"{seconds(setting.outage_seconds)}: found {seconds(setting.detection_seconds)}, restarted "
        f"{seconds(setting.restart_seconds)}, loaded {seconds(setting.checkpoint.load_seconds)}",
    }
    if body["tokens_per_second"] is not None:
        facts["tokens"] = f"{body['tokens_per_second']:,.0f} per second, outages counted"
    if body["days"] is not None:
        facts["whole"] = f"{body['days']:,.1f} days" + (
            f", {body['cost']:,.0f} at the price given" if body["cost"] is not None else ""
        )
    yield Facts(facts, width=12)
    yield Grid(
        ("lost to", "hours", "of the time"),
        [
            (row["cause"], f"{row['seconds_lost'] / 3600:,.1f}", percent(row["fraction"]))
            for row in _rows(training)
        ],
    )
    yield Grid(
        ("interrupted by", "how many", "hours between", "interruptions"),
        [
            (row["part"], f"{row['count']:,}", f"{row['mtbf_hours']:,.0f}", f"{row['interruptions']:,.1f}")
            for row in _parts_rows(training)
        ],
    )
    yield Grid(
        ("recovery", "checkpoint", "every", "goodput"),
        [
            (row["recovery"], row["checkpoint"], seconds(row["interval_seconds"]), percent(row["goodput"]))
            for row in policies
        ],
        text_columns=2,
        title="Policies, at their best intervals:",
    )
    yield Grid(
        ("what would help", "goodput", "gain"),
        [(row["change"], percent(row["goodput"]), f"{100 * row['gain']:+.2f} points") for row in gains],
    )
    yield quiet(
        f"Figures by {'the closed form' if training.method == 'closed form' else 'simulation'}, bounds of "
        f"{counted(RUNS, 'simulated run')}. {MODEL}.",
        f"Failures that are not given are those of {SOURCE}.",
    )
