"""Published trainings of one node, each predicted by running a plain script without data.

The scripts are ``examples/mpt.py`` (FSDP2), ``examples/resnet50.py`` and ``examples/bert.py`` (DDP), ordinary
torch that knows nothing of this testbed.  A row is one run of them on virtual ranks with virtual GPUs, whose
tensors have no values, as ``testbed run --fake`` does it; what is compared is the last of two iterations.

Passes of a step beyond the second take what the second has taken more than one did: those are the two runs
of a row with more than two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.lab.predicted.rows import sampled
from benchmarks.lab.published.shipped import DATA
from testbed.calibration.confidence import Compared, Errors
from testbed.output.table import grouped
from testbed.tasks.spread import cores, results

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STEPS = 2
_PASSES = 2
"""Passes of a step that are run; more follow from the last two counts."""
_DEVICES = {"h100_80gb": "h100:fa1_2023", "a100_80gb": "a100:fa1_2023", "a100_40gb": "a100-40gb:fa1_2023"}
_NETWORKS = {"h100": "dgx-h100", "a100": "dgx-a100", "v100": "aws-p3dn"}
_FITTED = {
    ("resnet50", "a100 tf32"): "calibrates",
    ("resnet50", "v100"): "calibrates",
    ("bert", "v100"): "calibrates",
}
"""Rows of one GPU to which constants of device files were fitted; the others judge."""


@dataclass(frozen=True)
class ScriptedRow:
    """A published training, and the run that predicts it.

    Attributes:
        set: of rows that it belongs to.
        model: as its table names it.
        device: as ``--compute`` names it.
        precision: as its table names it.
        setting: what else tells it from others.
        ranks: GPUs.
        script: name of the example.
        arguments: of the script, without steps and passes.
        passes: of a step.
        samples: of a rank in one pass: tokens, sequences or pictures.
        measured: samples per second and GPU.
        role: ``calibrates`` or ``judges``.
    """

    set: str
    model: str
    device: str
    precision: str
    setting: str
    ranks: int
    script: str
    arguments: tuple[str, ...]
    passes: int
    samples: int
    measured: float
    role: str

    @property
    def network(self) -> str:
        """Name of the network of its node."""
        return _NETWORKS[self.device[:4]]


@dataclass(frozen=True)
class ScriptedPrediction(Compared):
    """A row beside its prediction, in samples per second and GPU.

    Attributes:
        row: that was measured.
        step_seconds: of an iteration.
        exposed_seconds: of it, what the GPU waited for communication.
    """

    row: ScriptedRow
    step_seconds: float
    exposed_seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return it as a row of a result document."""
        return {
            **asdict(self.row),
            "predicted": self.predicted,
            "step_seconds": self.step_seconds,
            "exposed_seconds": self.exposed_seconds,
            "error": self.error,
        }


def scripted_rows() -> list[ScriptedRow]:
    """Return the rows that ship and that the scripts can be run for."""
    return [*_mpt(), *_one_gpu()]


def drawn_rows(sample: int, seed: int) -> list[ScriptedRow]:
    """Return at most *sample* rows of each script and device, drawn by *seed*."""
    kinds = grouped(scripted_rows(), lambda row: (row.script, row.device)).values()
    return [row for own in kinds for row in sampled(own, sample, seed)]


def predict(
    rows: Sequence[ScriptedRow], advance: Callable[[str], None] = lambda _: None
) -> list[ScriptedPrediction]:
    """Return predictions of *rows*, on all cores; *advance* is told of each.

    Raises:
        UsageError: the examples are not here.
    """
    found = {}
    for one in results(_predicted, rows, workers=min(cores(), len(rows)), modules=("collectives.virtual",)):
        found[one.row] = one
        advance(f"{one.row.model} on {one.row.device}, {one.row.precision} {one.row.setting}")
    return [found[row] for row in rows]


def families(found: Sequence[ScriptedPrediction]) -> dict[str, list[ScriptedPrediction]]:
    """Return predictions by script, device and role, by script, and those that are not of MPT."""
    scripts = {one.row.script: one.row.script.removesuffix(".py") for one in found}
    groups = {
        **grouped(found, lambda one: f"{scripts[one.row.script]} on {one.row.device}, {one.row.role}"),
        **grouped(found, lambda one: f"{scripts[one.row.script]}, all"),
        "DeepLearningExamples, all": [one for one in found if one.row.script != "mpt.py"],
    }
    return {name: own for name, own in groups.items() if own}


def summary(family: str, own: Sequence[ScriptedPrediction]) -> dict[str, Any]:
    """Return the errors of a *family* as JSON types."""
    errors = Errors.of(own)
    assert errors is not None
    return {
        "family": family,
        "count": errors.num_rows,
        "median": errors.median,
        "ninth": errors.ninth,
        "worst": errors.worst,
    }


def _predicted(row: ScriptedRow) -> ScriptedPrediction:
    step, exposed = _iteration(row, min(row.passes, _PASSES))
    if row.passes > _PASSES:
        less, less_exposed = _iteration(row, _PASSES - 1)
        more = row.passes - _PASSES
        step, exposed = step + more * (step - less), exposed + more * (exposed - less_exposed)
    return ScriptedPrediction(row.passes * row.samples / step, row.measured, row, step, exposed)


def _iteration(row: ScriptedRow, passes: int) -> tuple[float, float]:
    """Return seconds of the last iteration with so many passes, and what of them was exposed."""
    from collectives.virtual import run
    from collectives.virtual.computation import parse_compute

    nowhere = io.StringIO()
    accumulate = () if row.script == "resnet50.py" else ("--accumulate", str(passes))
    outcome = run(
        str(EXAMPLES / row.script),
        ranks=row.ranks,
        network=row.network,
        argv=(*row.arguments, *accumulate, "--steps", str(STEPS)),
        compute=parse_compute(row.device),
        transport_model="nccl",
        fake=True,
        memory_limit="off",
        streams=lambda rank: (nowhere, nowhere),
    )
    for namespace in outcome.results:
        namespace.clear()  # a loss keeps its graph, whose hooks keep the model, whose functions keep the loss
    report = outcome.report
    return report.iteration_seconds[-1], report.iterations[-1][0].exposed_seconds


def _mpt() -> Iterator[ScriptedRow]:
    """Yield the rows of MPT with FSDP on 8 GPUs."""
    for row in _table("fsdp_mpt.csv"):
        arguments = [
            "--model", row["model"], "--seq-len", row["seq_len"], "--microbatch", row["microbatch"],
            "--precision", row["precision"],
        ]  # fmt: skip
        checkpoints = row["activation_checkpointing"] == "True"
        if checkpoints:
            arguments.append("--checkpoint")
        if row["precision"] == "bf16":
            arguments.append("--recompute-all")  # those rows are of a torch before 2.1
        yield ScriptedRow(
            set="fsdp_mpt",
            model=row["model"],
            device=_DEVICES[row["gpu"]],
            precision=row["precision"],
            setting=f"{row['seq_len']} x {row['microbatch']}{', recomputed' if checkpoints else ''}",
            ranks=int(row["gpus"]),
            script="mpt.py",
            arguments=tuple(arguments),
            passes=int(row["grad_accum"]),
            samples=int(row["seq_len"]) * int(row["microbatch"]),
            measured=float(row["tokens_per_s_per_gpu"]),
            role="calibrates",
        )


def _one_gpu() -> Iterator[ScriptedRow]:
    """Yield NVIDIA's rows of one GPU in PyTorch, of ResNet-50 and of BERT-large with sequences of 128.

    Those with 512 exceed the V100's peak as full sequences and are left out.  Where no batch is stated it is
    128 pictures.
    """
    scripts = {"ddp_dle_pt_resnet50": "resnet50", "ddp_dle_pt_bertlarge": "bert"}
    for row in _table("training.csv"):
        script = next((name for prefix, name in scripts.items() if row["set"].startswith(prefix)), None)
        variant = row["phase_or_variant"]
        if script is None or row["gpus"] != "1" or (script == "bert" and not variant.startswith("seq128")):
            continue
        device = "a100" if "a100" in row["set"] else "v100"
        passes = int(row["grad_accum"] or 1)
        batch = int(row["batch_per_gpu"] or 128)
        if "per-accumulation" in variant:  # there the column is the whole batch of a step
            batch //= passes
        kind = device if (script, device) in _FITTED else f"{device} {row['precision']}"
        yield ScriptedRow(
            set=row["set"],
            model=row["model"],
            device=device,
            precision=row["precision"],
            setting=f"batch {batch}",
            ranks=1,
            script=f"{script}.py",
            arguments=("--batch", str(batch), "--precision", row["precision"]),
            passes=passes,
            samples=batch,
            measured=float(row["throughput"]),
            role=_FITTED.get((script, kind), "judges"),
        )


def _table(name: str) -> list[Mapping[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
