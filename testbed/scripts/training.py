"""One script trained in three ways, and what must hold between them.

(a) processes over Gloo and (b) rank threads over a simulated network run the same script with
the same ring, and must end with the same bits.  (c) one process sees the whole batch; it adds
in another order, so in float64 it must agree to rounding.
"""

from __future__ import annotations

import contextlib
import json
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.scripts.launch import launch, own_module
from testbed.scripts.rank_output import Lines

if TYPE_CHECKING:
    from sim import Topology

OnLine = Callable[[str], None]

TIMEOUT_SECONDS = 300.0
MAX_DIFFERENCE = 1e-10
MIN_ACCURACY = 0.95


@dataclass(frozen=True)
class Trained:
    """What a run left behind.

    Attributes:
        name: of the run.
        how: in a few words.
        ranks: world size.
        accuracy: fraction of the held-out digits that came out right.
        wall_seconds: what the whole run took here, start-up included.
        virtual_seconds: what it took in virtual time; None in real time.
        parameters: file of the final parameters.
    """

    name: str
    how: str
    ranks: int
    accuracy: float
    wall_seconds: float
    virtual_seconds: float | None
    parameters: Path = field(repr=False)


@dataclass(frozen=True)
class Check:
    """Something that must hold, and what was found."""

    claim: str
    found: str
    holds: bool


def example_script() -> Path:
    """Return the path of ``examples/digits.py``: of the source checkout, or of the installed copy.

    Raises:
        UsageError: there is neither.
    """
    name = Path("examples") / "digits.py"
    places = (
        Path(__file__).resolve().parents[2] / name,
        Path(sysconfig.get_path("data")) / "share" / "collective-testbed" / name,
    )
    for place in places:
        if place.is_file():
            return place
    looked = " nor ".join(map(str, places))
    raise UsageError(f"the demo runs {name}, which is neither at {looked}: run it from a source checkout")


def train_processes(
    name: str, how: str, script: Path, num_ranks: int, folder: Path, options: Sequence[str], on_line: OnLine
) -> Trained:
    """Run *script* in *num_ranks* processes over Gloo, as torchrun would."""
    started = time.perf_counter()
    command = [
        *own_module("testbed.scripts.loopback"),
        str(script),
        "--output",
        str(folder),
        *options,
    ]
    launch(command, num_ranks, timeout=TIMEOUT_SECONDS, on_line=on_line)
    return _trained(name, how, num_ranks, folder, time.perf_counter() - started, None)


def train_virtual(
    name: str,
    how: str,
    script: Path,
    topology: Topology,
    folder: Path,
    options: Sequence[str],
    on_line: OnLine,
    compute: Any,
) -> Trained:
    """Run *script*, unmodified, on rank threads over *topology* in virtual time.

    *compute* says what each piece of computation costs, in picoseconds.
    """
    from collectives.virtual import run

    started = time.perf_counter()
    with contextlib.redirect_stdout(Lines(on_line)):
        outcome = run(script, network=topology, argv=["--output", str(folder), *options], compute=compute)
    return _trained(name, how, topology.num_ranks, folder, time.perf_counter() - started, outcome.seconds)


def check_training(processes: Trained, virtual: Trained, single: Trained) -> list[Check]:
    """Return what must hold between the three runs, and whether it does."""
    a, b, c = (_parameters(run) for run in (processes, virtual, single))
    count = sum(array.size for array in a.values())
    differing = sum(_num_differing(a[key], b[key]) for key in a)
    apart = max(float(abs(a[key] - c[key]).max()) for key in a)
    worst = min(processes.accuracy, virtual.accuracy, single.accuracy)

    return [
        Check(
            "(a) and (b) end with bit-identical parameters",
            f"{differing} of {count:,} differ",
            a.keys() == b.keys() and differing == 0,
        ),
        Check(
            f"(c) agrees with them to {MAX_DIFFERENCE:g}",
            f"largest difference {apart:.1e}",
            apart <= MAX_DIFFERENCE,
        ),
        Check(f"more than {MIN_ACCURACY:.0%} of held-out digits right", f"{worst:.1%}", worst > MIN_ACCURACY),
    ]


def _num_differing(one: Any, other: Any) -> int:
    """Return how many elements of two arrays differ in any of their bits."""
    bytes_differ = one.view("uint8") != other.view("uint8")
    return int(bytes_differ.reshape(one.size, -1).any(axis=1).sum())


def _trained(
    name: str, how: str, ranks: int, folder: Path, wall_seconds: float, virtual_seconds: float | None
) -> Trained:
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    parameters = folder / "parameters.pt"
    return Trained(name, how, ranks, metrics["accuracy"], wall_seconds, virtual_seconds, parameters)


def _parameters(run: Trained) -> dict[str, Any]:
    import torch

    state = torch.load(run.parameters, map_location="cpu", weights_only=True)
    return {name: tensor.contiguous().reshape(-1).numpy() for name, tensor in state.items()}
