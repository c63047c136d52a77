"""Goodput of a training: the answer, where its time goes, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from testbed.options.planning import QuestionOptions
from testbed.output.table import counted, percent, seconds
from testbed.planning.goodput.policy import SOURCE, Checkpoint, Setting
from testbed.planning.goodput.study import RUNS, Goodput
from testbed.planning.scripts import Trained
from testbed.result import Facts, Result, Rows, Text, asked, found, quiet

COLUMNS = (
    *asked("cause", head="lost to"),
    *found("seconds_lost", head="hours", spell=lambda own: f"{own / 3600:,.1f}"),
    *found("fraction", head="of the time", spell=percent),
)
OF_PARTS = (
    *asked("part", head="interrupted by", of=lambda own: own[0].name),
    *asked("count", head="how many", spell="{:,}".format, of=lambda own: own[0].count),
    *asked("mtbf_hours", head="hours between", spell="{:,.0f}".format, of=lambda own: own[0].mtbf_hours),
    *asked("source", of=lambda own: own[0].source),
    *found("interruptions", head="interruptions", spell="{:,.1f}".format, of=lambda own: own[1]),
)
OF_POLICIES = (
    *asked("recovery", head="recovery"),
    *asked("checkpoint", head="checkpoint"),
    *found("interval_seconds", head="every", spell=seconds),
    *found("goodput", head="goodput", spell=percent),
    *found("method"),
)
OF_GAINS = (
    *asked("change", head="what would help"),
    *found("goodput", head="goodput", spell=percent),
    *found("gain", head="gain", spell=lambda own: f"{100 * own:+.2f} points"),
)

MODEL = (
    "Failures come at any time, without memory, also in outages; after one, training goes on from the last "
    "checkpoint that is safe; a checkpoint takes what its bytes take at the rate of storage"
)
_DAY = 86_400.0


def goodput_result(
    what: str,
    where: tuple[str, int],
    asked: QuestionOptions,
    trained: Trained,
    training: Goodput,
    checkpoints: Mapping[str, Checkpoint],
    kind: str,
) -> Result:
    """Return the goodput of *training*, with the steps of *trained*.

    Args:
        what: the script, with its arguments.
        where: the name of a network, and how many GPUs.
        asked: which says tokens and price.
        trained: its step, and its state.
        training: the run that is asked for.
        checkpoints: of either kind.
        kind: of checkpoint that is asked for.
    """
    (network, ranks), setting, fraction = where, training.setting, training.fraction
    low, high = training.bounds
    answer = _answer(training, low, high)
    rows = Rows.of(COLUMNS, ((cause, lost, lost / training.seconds) for cause, lost in training.lost.items()))
    known = {part.name: part for part in setting.parts}
    parts = Rows.of(OF_PARTS, [[known[name], number] for name, number in training.failures().items()])
    tried = training.policies(dict(checkpoints))
    each = ((*which, own.setting.interval_seconds, own.fraction, own.method) for *which, own in tried)
    policies = Rows.of(OF_POLICIES, each)
    changed = [(name, own.fraction, own.fraction - fraction) for name, own in training.alternatives()]
    gains = Rows.of(OF_GAINS, sorted(changed, key=lambda own: -own[2]))
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
        **_of_tokens(asked, ranks, trained, fraction),
    }
    return Result(
        question=f"What comes of {training.seconds / _DAY:g} days of {what} on {ranks} ranks of {network}?",
        answer=answer,
        method=training.method,
        model=MODEL,
        seed=training.seed,
        assumptions=_assumptions(setting, kind),
        rows=rows,
        tables={"parts": parts, "policies": policies, "gains": gains},
        body=body,
        parts=[
            Text([answer], wrap=True),
            *([] if trained.fits else [Text([f"The script {trained.memory}."], tone="warning", wrap=True)]),
            Facts(_facts(setting, body), width=12),
            rows.grid(),
            parts.grid(),
            policies.grid(text_columns=2, title="Policies, at their best intervals:"),
            gains.grid(),
            quiet(
                f"Figures by {'the closed form' if training.method == 'closed form' else 'simulation'}, "
                f"bounds of {counted(RUNS, 'simulated run')}. {MODEL}.",
                f"Failures that are not given are those of {SOURCE}.",
            ),
        ],
    )


def _answer(training: Goodput, low: float, high: float) -> str:
    lost = next(iter(training.lost.items()), None)
    most = f"; most is lost to {lost[0]}, {percent(lost[1] / training.seconds)}" if lost else ""
    return (
        f"{percent(training.fraction)} of the time counts ({percent(low)} to {percent(high)} in nine of ten "
        f"runs), with {counted(round(training.interruptions), 'interruption')}{most}."
    )


def _of_tokens(asked: QuestionOptions, ranks: int, trained: Trained, fraction: float) -> dict[str, Any]:
    """Return tokens per second, days and cost, as far as somebody says what they depend on."""
    tokens, price = asked.tokens_per_rank, asked.content()["network"][0].get("price_per_gpu_hour")
    rate = None if tokens is None else tokens * ranks / trained.step_seconds * fraction
    days = asked.train_tokens / rate / _DAY if rate and asked.train_tokens is not None else None
    cost = None if days is None or price is None else days * 24 * ranks * price
    return {"tokens_per_second": rate, "days": days, "cost": cost}


def _assumptions(setting: Setting, kind: str) -> dict[str, Any]:
    named = ("recovery", "detection_seconds", "restart_seconds", "repair_seconds", "spares")
    return {
        "mtbf_hours": {part.name: part.mtbf_hours for part in setting.parts},
        "checkpoint": kind,
        **{name: getattr(setting, name) for name in named},
        "degraded": setting.degraded and asdict(setting.degraded),
    }


def _facts(setting: Setting, body: Mapping[str, Any]) -> dict[str, str]:
    facts = {
        "step": seconds(body["step_seconds"]),
        "checkpoint": f"{setting.checkpoint.nbytes / 1e9:,.1f} GB, "
        f"{seconds(setting.checkpoint.stall_seconds)} every {seconds(setting.interval_seconds)}",
        "outage": f"{seconds(setting.outage_seconds)}: found {seconds(setting.detection_seconds)}, restarted "
        f"{seconds(setting.restart_seconds)}, loaded {seconds(setting.checkpoint.load_seconds)}",
    }
    if body["tokens_per_second"] is not None:
        facts["tokens"] = f"{body['tokens_per_second']:,.0f} per second, outages counted"
    if body["days"] is not None:
        priced = "" if body["cost"] is None else f", {body['cost']:,.0f} at the price given"
        facts["whole"] = f"{body['days']:,.1f} days{priced}"
    return facts
