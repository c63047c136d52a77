"""Published data-parallel trainings, each beside the row of one GPU that tells its loss of efficiency."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.lab.published.shipped import DATA

Role: TypeAlias = Literal["calibrate", "judge", "left out"]

PROFILES = {
    "ResNet-50": "resnet50",
    "ResNet50v1.5": "resnet50",
    "resnet50": "resnet50",
    "BERT-Base": "bert-base",
    "BERT-Large": "bert-large",
    "SSD300-ResNet50": "ssd300-resnet50",
    "ssd": "ssd300-resnet50",
    "Transformer-XL base": "transformer-xl-base",
    "transformerxlbase": "transformer-xl-base",
    "Transformer-XL large": "transformer-xl-large",
    "transformerxllarge": "transformer-xl-large",
    "Transformer-big": "transformer-big",
}
"""The profile of a model that the tables name."""

TOKENS = {"transformer-xl-base": 192, "transformer-xl-large": 384}
"""Tokens of a sequence, where throughput counts tokens and the batch sequences."""

STRATEGIES = {"BSP-A2A": "after_backward", "WFBP-A2A": "per_parameter", "MG-WFBP": "mg_wfbp"}
"""The strategy of a variant; all others launch buckets as torch's DDP and Horovod do."""

PER_STEP = "batch column is per-accumulation batch"


@dataclass(frozen=True)
class Training:
    """A published training on several GPUs.

    Attributes:
        set: of rows that it belongs to.
        model: as the table names it.
        variant: of model or software, as the table names it.
        precision: of the arithmetic.
        nodes: how many.
        gpus: on all of them.
        passes: forward and backward passes of a step.
        alone_seconds: a step on one GPU, from the row of one GPU.
        efficiency: throughput of a GPU over that of one GPU alone.
        role: what the row is for.
    """

    set: str
    model: str
    variant: str
    precision: str
    nodes: int
    gpus: int
    passes: int
    alone_seconds: float
    efficiency: float
    role: Role

    @property
    def profile(self) -> str:
        """Name of the profile of its model."""
        return PROFILES[self.model]

    @property
    def strategy(self) -> str:
        """When buckets are launched."""
        launched = STRATEGIES.get(self.variant, "wait_free")
        return f"accumulate:k={self.passes},last={launched}" if self.passes > 1 else launched


def trainings() -> list[Training]:
    """Return the trainings that ship and can be compared, those that are left out among them."""
    with (DATA / "training.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    split = tomllib.loads((DATA / "training_split.toml").read_text("utf-8"))
    return list(_compared(rows, split))


def hardware_of(name: str) -> Mapping[str, Any]:
    """Return the hardware of a set of trainings, as the sources have it."""
    systems: dict[str, Any] = json.loads((DATA / "systems.json").read_text("utf-8"))
    hardware: Mapping[str, Any] = systems[name]["hardware"]
    return hardware


def _compared(rows: list[dict[str, str]], split: Mapping[str, Any]) -> Iterator[Training]:
    alone = {_group(row): float(row["throughput"]) for row in rows if row["gpus"] == "1"}
    for row in rows:
        gpus, batch = int(row["gpus"]), row["batch_per_gpu"]
        if gpus == 1 or row["model"] not in PROFILES or not batch or _group(row) not in alone:
            continue
        passes, throughput = int(row["grad_accum"] or 1), alone[_group(row)]
        samples = int(batch) * (1 if PER_STEP in row["phase_or_variant"] else passes)
        if row["unit"] == "tokens/s":
            samples *= TOKENS.get(PROFILES[row["model"]], 1)
        yield Training(
            set=row["set"],
            model=row["model"],
            variant=row["phase_or_variant"],
            precision=row["precision"],
            nodes=int(row["nodes"]),
            gpus=gpus,
            passes=passes,
            alone_seconds=samples / throughput,
            efficiency=float(row["throughput"]) / gpus / throughput,
            role=_role(row, split),
        )


def _group(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("set", "model", "phase_or_variant", "precision", "batch_per_gpu"))


def _role(row: Mapping[str, str], split: Mapping[str, Any]) -> Role:
    variant = row["phase_or_variant"]
    for own in split["left_out"]:
        if own["set"] == row["set"]:
            named = variant in own.get("variants", ()) or row["model"] in own.get("models", ())
            if named:
                return "left out"
    for own in split["calibrate"]:
        if (own["set"], own["model"], own["variant"]) == (row["set"], row["model"], variant):
            return "calibrate"
    return "judge"
