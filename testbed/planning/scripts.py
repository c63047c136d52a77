"""Scripts as points: a run without data in virtual time, and what its steady iteration takes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.options.arguments import computes_on_gpu, parse_compute_model
from testbed.planning.points import Point
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row

if TYPE_CHECKING:
    from collectives.timing import Assumptions
    from collectives.virtual import VirtualReport, VirtualRun
    from sim.topology import Topology

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
    from collectives.timing import default_algorithm
    from sim.errors import RankError, SimulationError

    on_gpu = point.transport == "auto" and computes_on_gpu(point.compute)
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
        said = memory.text if memory is not None and not memory.fits else _spell(error)
        return Row(point, problem=said, topology=topology.digest())
    except SimulationError as error:
        return Row(point, problem=str(error).partition("\n")[0], topology=topology.digest())
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
    from sim.errors import RankError
    from testbed.scripts.script import check_script

    check_script(script)
    silence, heard = io.StringIO(), io.StringIO()
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
        for line in heard.getvalue().splitlines()[-_LAST_LINES:]:
            error.add_note(line)
        raise
    except (SyntaxError, ModuleNotFoundError) as error:
        raise UsageError(f"{script}: {error}") from None


def _row(point: Point, topology: Topology, report: VirtualReport) -> Row:
    steady = report.steady()
    if steady is None:
        return Row(point, problem=f"the script {ENDED_EARLY}", topology=topology.digest())
    link = report.links.bottleneck
    used = report.memory
    return Row(
        point,
        seconds=steady.seconds,
        compute_seconds=steady.compute_seconds,
        efficiency=steady.compute_seconds / steady.seconds if steady.seconds else None,
        algorithm=report.algorithm,
        bottleneck=None if link is None else link.name,
        bottleneck_utilisation=None if link is None else link.utilisation,
        memory_bytes=None if used is None else used.peak_bytes,
        topology=topology.digest(),
    )


def _spell(error: BaseException) -> str:
    cause = error.__cause__
    return f"{error}" if cause is None else f"{type(cause).__name__}: {cause}".partition("\n")[0]
