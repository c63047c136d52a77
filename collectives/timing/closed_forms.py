"""Times by a closed form: what NCCL itself expects, what was measured, and reduction in the switches.

No program is run and no message sent, so nothing is known of single links or of conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, get_args

from collectives.catalogue.selectors import NCCL, NVLS, OF_LIBRARY
from collectives.errors import NotExactError, NotSupportedError
from collectives.program.program_key import ProgramKey
from collectives.timing.assumptions import Model
from collectives.timing.cost import linear_cost, selector_on
from collectives.timing.floor import floor_ps
from collectives.timing.formulas.in_network import in_network_ps
from collectives.timing.formulas.measured import measured_on
from collectives.timing.formulas.nccl.model import KNOWN, predict_on
from collectives.timing.formulas.nccl.symmetric import symmetric_kernel
from collectives.timing.job import Job
from collectives.timing.run import Run
from sim.scenario import Scenario
from sim.topology import Topology
from sim.topology.placement import places
from sim.units import SECOND

ClosedForm: TypeAlias = Callable[[Job, Scenario], Run]
"""Evaluates a job; what it cannot follow, it refuses."""

NCCL_NAMES = {
    "ring": "Ring",
    "tree": "Tree",
    "double_binary_tree": "Tree",
    "pat": "PAT",
    "direct": "P2P",
    NVLS: "NVLS",
    "auto": None,
    "native": None,
    "nccl": None,
}
"""NCCL's algorithm for each of our names; none: whatever it would choose."""


def closed_form_of(algorithm: object, model: Model) -> ClosedForm | None:
    """Return the formula that gives the time of *algorithm* by *model*; None where its program is simulated.

    Raises:
        ValueError: there is no such model.
    """
    if model not in get_args(Model):
        raise ValueError(f"model must be 'links', 'nccl', 'measured' or 'library', got {model!r}")
    if model == "library" and algorithm in OF_LIBRARY:
        return as_the_library
    if model == "nccl":
        return as_nccl_expects
    if model == "measured":
        return as_measured
    return in_the_switches if algorithm == NVLS else None


def as_nccl_expects(job: Job, scenario: Scenario) -> Run:
    """Return the time that NCCL's own model expects (see `collectives.timing.formulas.nccl.model`).

    Raises:
        NotSupportedError: the model does not know the algorithm, the collective or the network, or a
            condition holds.
    """
    return _by_nccls_model(job, scenario, likely=False)


def _by_nccls_model(job: Job, scenario: Scenario, *, likely: bool, added_ps: int = 0) -> Run:
    topology, hosts = scenario.base, places(job.placement, scenario.base)
    job.software.rank_overhead()  # is not part of the model, but what cannot be read is refused
    _refuse_what_nccl_ignores(job, scenario, 'model="nccl"')
    name = str(job.algorithm)
    if not isinstance(job.algorithm, str) or name not in NCCL_NAMES:
        known = ", ".join(NCCL_NAMES)
        raise NotSupportedError(f'model="nccl" knows of no algorithm {name}; expected one of {known}')

    wanted: Any = NCCL_NAMES[name]
    best = predict_on(topology, hosts, job.collective, job.nbytes, wanted)
    seconds = best.likely_seconds if likely else best.seconds
    time_ps = round(seconds * SECOND) + added_ps

    in_switches = best.algorithm.startswith(("NVLS", "CollNet"))
    floor = floor_ps(job.collective, job.nbytes, topology, 0, hosts, in_network=in_switches)
    if best.algorithm == "P2P":
        time_ps = max(time_ps, floor)  # messages go straight from rank to rank, so at best at the links' rate
    if time_ps < floor:
        raise NotSupportedError(
            f"NCCL's model expects {seconds:.3g} s of {best.algorithm}, less than the links of "
            f"{topology.name} allow: its [hardware] and its links do not describe one system"
        )
    return Run.by_formula(
        job,
        topology,
        time_ps=time_ps,
        floor_ps=floor,
        algorithm=f"{best.algorithm}/{best.protocol}",
        model="nccl",
        latency_ps=round((best.likely_latency_seconds if likely else best.latency_seconds) * SECOND),
    )


def as_the_library(job: Job, scenario: Scenario) -> Run:
    """Return the time of the library's own choice: as measured on such a network, else as NCCL expects.

    Of what NCCL would choose it is the likely time (see `collectives.timing.formulas.nccl.model`), not that
    by which it chooses.  Of buffers that are registered, it is that of the symmetric kernel that NCCL takes
    in place of all others (see `collectives.timing.formulas.nccl.symmetric`), if it has one.

    Raises:
        NotSupportedError: neither is known of this collective, or a condition holds.
    """
    run = _by_symmetric_kernel(job, scenario) if job.software.symmetric else None
    if run is not None:
        return run
    try:
        return as_measured(job, scenario)
    except NotSupportedError:
        added_ps = _of_the_tree(job, scenario)
        return _by_nccls_model(replace(job, algorithm=NCCL), scenario, likely=True, added_ps=added_ps)


def _by_symmetric_kernel(job: Job, scenario: Scenario) -> Run | None:
    """Return the time of NCCL's symmetric kernel for a job, or of the links; None where NCCL has none.

    Raises:
        NotSupportedError: a condition holds.
    """
    topology, hosts = scenario.base, places(job.placement, scenario.base)
    if topology.hardware is None or len({host // topology.ranks_per_node for host in hosts}) > 1:
        return None
    kernel = symmetric_kernel(job.collective, job.nbytes, len(hosts), topology.hardware)
    if kernel is None:
        return None
    _refuse_what_nccl_ignores(job, scenario, "NCCL's model of symmetric kernels")
    floor = floor_ps(job.collective, job.nbytes, topology, 0, hosts, in_network=True)
    time_ps = max(round(kernel.seconds * SECOND), floor)
    return Run.by_formula(
        job,
        topology,
        time_ps=time_ps,
        floor_ps=floor,
        algorithm=kernel.name,
        model="nccl",
        latency_ps=round(kernel.latency_seconds * SECOND),
    )


def _of_the_tree(job: Job, scenario: Scenario) -> int:
    """Return what a tree of switches adds to a call, in picoseconds, as NCCL's model knows nothing of it.

    It is what the tree adds to the bytes of the program that stands for NCCL's, on the busiest link of each
    step (`collectives.timing.cost`): nothing where it is not oversubscribed and spreads messages evenly.

    Raises:
        NotSupportedError: the program sends too many messages to tell.
    """
    topology, hosts = scenario.base, places(job.placement, scenario.base)
    if topology.without_tree is None:
        return 0
    program = selector_on(topology, NCCL, hosts).select(job.collective, job.nbytes)
    assert program is not None, "native has been settled"
    try:
        return round(_per_byte_of_tree(ProgramKey.of(program), topology, hosts) * job.nbytes * SECOND)
    except NotExactError as error:
        raise NotSupportedError(f"{topology.name}: what its tree adds to {program}: {error}") from None


@lru_cache(maxsize=256)
def _per_byte_of_tree(program: ProgramKey, topology: Topology, hosts: tuple[int, ...]) -> float:
    free = topology.without_tree
    assert free is not None
    with_it, without = (linear_cost(program.algorithm, one, hosts).per_byte for one in (topology, free))
    return max(with_it - without, 0.0)


def is_known_of_the_library(collective: str, topology: Topology) -> bool:
    """Return whether `as_the_library` may know *collective*; else programs stand for it."""
    return collective in KNOWN or any(own.collective == collective for own in topology.measured)


def as_measured(job: Job, scenario: Scenario) -> Run:
    """Return the time that measurements in the network's file say, by `collectives.timing.formulas.measured`.

    Raises:
        NotSupportedError: nothing was measured from which the time follows, the algorithm is one of ours,
            or a condition holds.
    """
    topology, hosts = scenario.base, places(job.placement, scenario.base)
    _refuse_conditions(scenario, 'model="measured"')
    if job.software.has_overheads:
        raise NotSupportedError('model="measured" has the software in it; leave out overhead and reduction')
    if job.algorithm not in ("auto", "native", "nccl"):
        raise NotSupportedError(
            f'model="measured" is of the library\'s own algorithm, not of {job.algorithm}; '
            "take native or auto"
        )

    expected = measured_on(topology, hosts, job.collective, job.nbytes)
    time_ps = round(expected.seconds * SECOND)
    floor = floor_ps(job.collective, job.nbytes, topology, 0, hosts, in_network=True)
    if time_ps < floor:
        raise NotSupportedError(
            f"{topology.name}: {expected.seconds:.3g} s of {job.collective} follow from what was measured, "
            f"less than the {floor / SECOND:.3g} s that its links allow: [[measured]] and the links of its "
            "file do not describe one system; raise the bandwidth or lower the latency of the links"
        )
    return Run.by_formula(
        job,
        topology,
        time_ps=time_ps,
        floor_ps=floor,
        algorithm=f"native/{expected.protocol}",
        model="measured",
        interval_seconds=(expected.low, expected.high),
        beyond=expected.carried,
        latency_ps=round(expected.seconds * expected.latency_part * SECOND),
    )


def in_the_switches(job: Job, scenario: Scenario) -> Run:
    """Return the time where switches reduce and multicast (see `collectives.timing.formulas.in_network`).

    Raises:
        NotSupportedError: the model does not know the collective or the network, or a condition holds.
    """
    topology, hosts = scenario.base, places(job.placement, scenario.base)
    if job.software.has_overheads:
        raise NotSupportedError("nvls is a closed form without overhead and reduction; leave them out")

    launch_ps = job.software.rank_overhead().step_ps  # of the one kernel
    time_ps = in_network_ps(job.collective, job.nbytes, topology, hosts) + launch_ps
    _refuse_what_nccl_ignores(job, scenario, NVLS)
    floor = floor_ps(job.collective, job.nbytes, topology, 0, hosts, in_network=True)
    return Run.by_formula(job, topology, time_ps=time_ps, floor_ps=floor, algorithm=NVLS, model="links")


def _refuse_what_nccl_ignores(job: Job, scenario: Scenario, what: str) -> None:
    """Refuse whatever a model of NCCL's knows nothing of."""
    _refuse_conditions(scenario, what)
    if scenario.base.sharing is not None:
        raise NotSupportedError(
            f"{what} is a closed form that knows no sharing tables; {scenario.base.name} has some: "
            'leave them out, or take model="links"'
        )
    asked = job.software.transport
    if asked.name not in ("ideal", "nccl"):
        raise NotSupportedError(
            f"{what} is a closed form of what NCCL does; transport_model={asked.name!r} is another "
            "transport's: leave it out, or take 'nccl'"
        )


def _refuse_conditions(scenario: Scenario, what: str) -> None:
    if scenario.conditions:
        held = ", ".join(map(str, scenario.conditions))
        raise NotSupportedError(f"{what} is a closed form that knows no conditions; leave out {held}")
