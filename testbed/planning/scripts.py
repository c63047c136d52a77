"""Scripts in plans: a run without data in virtual time, what its steady iteration takes, and its state."""

from __future__ import annotations

import io
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collectives.timing import Assumptions, default_algorithm
from sim.errors import RankError, SimulationError
from sim.topology import Topology
from testbed.errors import UsageError
from testbed.options.arguments import computes_on_gpu, parse_compute_model
from testbed.planning.points import Point
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport, VirtualRun


ENDED_EARLY = "finished no second iteration: give it at least two steps of its optimizer"
_LAST_LINES = 8
"""Of what a script has said on stderr, where it fails."""


def evaluate_script(point: Point, topology: Topology, assumed: Assumptions) -> Row:
    """Return what an iteration of a script takes on *topology*, with its peak of memory.

    What the script prints is dropped.  Where it fails, or runs out of the device's memory, that is the row's
    problem.

    Raises:
        UsageError: there is no such script, or it cannot be read as Python.
    """
    on_gpu = point.transport == "auto" and not point.ideal and computes_on_gpu(point.compute)
    transport = "nccl" if on_gpu else None
    try:
        report = run_unheard(
            point.model,
            point.arguments,
            point.compute,
            network=topology,
            algorithm=default_algorithm(topology) if point.algorithm == DEFAULT else point.algorithm,
            assumptions=assumed.with_(transport_model=transport),
            fake=computes_on_gpu(point.compute),
        ).report
    except RankError as error:
        memory = getattr(getattr(error, "report", None), "memory", None)
        said = memory.text if memory is not None and not memory.fits else in_a_line(error)
        return Row(point, problem=said, topology=topology.digest())
    except SimulationError as error:
        return Row(point, problem=in_a_line(error), topology=topology.digest())
    return _row(point, topology, report)


def run_unheard(script: str, arguments: Sequence[str], compute: str, **options: Any) -> VirtualRun:
    """Run *script* on virtual ranks and return the run; what the script prints is dropped.

    Args:
        script: its path.
        arguments: of the script.
        compute: the model of computation, in words.
        options: as for `collectives.virtual.run`.

    Raises:
        UsageError: there is no such script, or it cannot be read as Python.
        RankError: it fails; notes say what it printed last on stderr.
    """
    from collectives.virtual import run
    from testbed.scripts.script import check_script

    check_script(script)
    silence, heard = io.StringIO(), io.StringIO()
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch's own handler writes to the process's stderr
    try:
        return run(
            script,
            argv=tuple(arguments),
            compute=parse_compute_model(compute),
            looks_for_shared_state=False,
            streams=lambda rank: (silence, heard),
            **options,
        )
    except RankError as error:
        error.heard = heard.getvalue().splitlines()[-_LAST_LINES:]  # type: ignore[attr-defined]
        for line in error.heard:  # type: ignore[attr-defined]
            error.add_note(line)
        raise
    except (SyntaxError, ModuleNotFoundError) as error:
        raise UsageError(f"{script}: {error}") from None
    finally:
        logging.disable(disabled)


def _row(point: Point, topology: Topology, report: VirtualReport) -> Row:
    from collectives.virtual.streams.losses import SLOWEST

    steady = report.steady()
    if steady is None:
        return Row(point, problem=f"the script {ENDED_EARLY}", topology=topology.digest())
    link = report.links.bottleneck
    used = report.memory
    computed = steady.compute_seconds - sum(own.seconds for own in report.lost_to if own.cause == SLOWEST)
    return Row(
        point,
        seconds=steady.seconds,
        compute_seconds=computed,
        efficiency=computed / steady.seconds if steady.seconds else None,
        inefficiencies=() if report.slowest == 1 else ("late",),
        algorithm=report.algorithm,
        bottleneck=None if link is None else link.name,
        bottleneck_utilisation=None if link is None else link.utilisation,
        memory_bytes=None if used is None else used.peak_bytes,
        topology=topology.digest(),
    )


def in_a_line(error: SimulationError) -> str:
    """Return why a script failed: of one that ended by itself what it said last, as of wrong arguments."""
    heard = getattr(error, "heard", [])
    if isinstance(error.__cause__, SystemExit) and heard:
        return str(heard[-1])
    cause = error.__cause__
    return (f"{error}" if cause is None else f"{type(cause).__name__}: {cause}").partition("\n")[0]


@dataclass(frozen=True)
class Trained:
    """What a script's training takes.

    Attributes:
        step_seconds: of a steady iteration.
        state_bytes: of parameters and the optimizer's state on all ranks, each part once.
        memory: whether it fits, in words; empty where that is not known.
        fits: whether it does.
    """

    step_seconds: float
    state_bytes: float
    memory: str
    fits: bool


def train(
    script: str,
    arguments: Sequence[str],
    *,
    network: str,
    ranks: int,
    compute: str,
    state_bytes: float | None = None,
) -> Trained:
    """Run *script* without data on *ranks* virtual GPUs; what it prints is dropped.

    Memory has no limit: whether it suffices is reported, and a training that does not fit can be planned.

    Args:
        script: that trains.
        arguments: of the script.
        network: its name.
        ranks: GPUs.
        compute: the device that computes.
        state_bytes: of parameters and the optimizer's state; None: what the script's optimizers hold.

    Raises:
        UsageError: there is no such script; it finishes no second iteration, or no global name holds its
            optimizer.
        RankError: it fails.
    """
    outcome = run_unheard(
        script, arguments, compute, ranks=ranks, network=network, fake=True, memory_limit="off"
    )
    report = outcome.report
    steady = report.steady()
    if steady is None:
        raise UsageError(f"{script} {ENDED_EARLY}")
    namespaces = {id(own): own for own in outcome.results}  # one for all ranks that are folded
    asked_for = namespaces if state_bytes is None else {}
    states = {key: _state_bytes(own, ranks) for key, own in asked_for.items()}
    ranks_with = Counter(map(id, outcome.results))
    for namespace in namespaces.values():
        namespace.clear()  # what a loss keeps alive keeps the model
    if state_bytes is None:
        if not any(states.values()):
            raise UsageError(
                f"{script}: no global name holds an optimizer after the run, so the state is not known; give "
                "--checkpoint-bytes"
            )
        state_bytes = math.fsum(ranks_with[key] * state for key, state in states.items())
    used = report.memory
    if used is None:
        return Trained(steady.seconds, state_bytes, "", True)
    return Trained(steady.seconds, state_bytes, used.text, used.fits)


def _state_bytes(namespace: Mapping[str, Any], num_ranks: int) -> float:
    """Return a rank's part of the state: what it holds, shared with those who hold the same."""
    from torch import Tensor
    from torch.optim import Optimizer

    optimizers = {id(value): value for value in namespace.values() if isinstance(value, Optimizer)}
    tensors: dict[int, Any] = {}
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            tensors.update((id(parameter), parameter) for parameter in group["params"])
        for state in optimizer.state.values():
            tensors.update((id(value), value) for value in state.values() if isinstance(value, Tensor))
    is_sharded = any(_mesh(tensor) is not None for tensor in tensors.values())
    return math.fsum(_local_bytes(own) / _copies(own, num_ranks, is_sharded) for own in tensors.values())


def _mesh(tensor: Any) -> Any:
    """Return the mesh of a DTensor; None for any other tensor."""
    return getattr(tensor, "device_mesh", None)


def _local_bytes(tensor: Any) -> int:
    return int((tensor if _mesh(tensor) is None else tensor.to_local()).nbytes)


def _copies(tensor: Any, num_ranks: int, is_sharded: bool) -> int:
    """Return how many ranks hold the same: by its placements, or all where nothing is sharded."""
    mesh = _mesh(tensor)
    if mesh is None:
        return 1 if is_sharded else num_ranks
    return math.prod(mesh.size(dim) for dim, own in enumerate(tensor.placements) if own.is_replicate())
