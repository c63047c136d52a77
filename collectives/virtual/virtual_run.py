"""Runs of a function or an unmodified script as N ranks in virtual time, in one process.

    outcome = run("examples/digits.py", ranks=4, network="switch-100g", argv=["--epochs", "2"])
    outcome.seconds

The script finds what ``torchrun`` would have given it: RANK, WORLD_SIZE and their kin in its
environment, a ``__main__`` of its own, fresh random generators, a rendezvous that works.  Whatever
backend it asks for, its process groups are ours (`collectives.torch_backend`) over the simulated
network.  Time passes for a rank when it waits for messages, and when a computation is charged.

Everything that is replaced in torch or in the process for that is put back at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Unpack

from collectives.catalogue.native import native_over
from collectives.catalogue.selectors import NATIVE, NCCL, OF_LIBRARY, Choice, check_choice, parse_auto
from collectives.errors import NotSupportedError
from collectives.timing.assumptions import Assumptions, Counted, Software
from collectives.timing.cost import selector_on
from collectives.timing.formulas.nccl.protocol import with_protocol
from collectives.virtual.computation import Charges, ComputeModel, Roofline
from collectives.virtual.faults import Faults, VirtualCondition
from collectives.virtual.folding.attempts import in_attempts
from collectives.virtual.folding.folding import Folding
from collectives.virtual.folding.verification import FEW_RANKS
from collectives.virtual.gpu.routing import Router, Routing
from collectives.virtual.isolation.per_rank import Streams
from collectives.virtual.memory.memories import MemoryLimit
from collectives.virtual.script_clock import ScriptClock
from collectives.virtual.setting import Setting, VirtualRun
from collectives.virtual.streams.gpus import gpu_of
from collectives.virtual.task import FunctionOrScript
from sim.cluster import Order
from sim.errors import TopologyError
from sim.files.late_ranks import slowest_on
from sim.topology import Topology
from sim.topology.description import load_network
from sim.trace import Trace

if TYPE_CHECKING:
    from collectives.virtual.diagnosis.races import Races
    from collectives.virtual.parameters.record import ParameterRecord

DEFAULT_NETWORK = "switch-100g"

_HARDLY_ANY = 4
"""So many ranks cost at most twice as much with a thread each: folded, most have one at first."""


def run(
    fn_or_script: FunctionOrScript,
    ranks: int | None = None,
    network: Topology | str | os.PathLike[str] | None = None,
    *,
    compute: ComputeModel | Mapping[str, int] | None = None,
    conditions: Sequence[VirtualCondition] = (),
    algorithm: Choice | None = None,
    assumptions: Assumptions | None = None,
    argv: Sequence[str] = (),
    trace: Trace | None = None,
    streams: Callable[[int], Streams] | None = None,
    watch: Callable[[int, int], None] | None = None,
    faults: Sequence[VirtualCondition] = (),
    fake: bool = False,
    routing: str | os.PathLike[str] | Router | None = None,
    strict: bool = False,
    memory_limit: MemoryLimit = None,
    fold: bool | Folding | None = None,
    own: Sequence[str] = (),
    clock: ScriptClock = "virtual",
    looks_for_shared_state: bool = True,
    order: Order | None = None,
    parameters: ParameterRecord | None = None,
    lenient: bool = False,
    races: Races | None = None,
    late_among: int | None = None,
    **counted: Unpack[Counted],
) -> VirtualRun:
    """Run ``fn(rank)``, or a script, on every rank of a network in virtual time.

    Args:
        fn_or_script: a function of the rank, the path of a script, or a `Module`.
        ranks: how many; None: as many as *network* has, where it says so.
        network: the name of a preset or the path of a network file, which bring along what a real run there
            would use; or a topology, which knows its links alone; None: the links of ``switch-100g``.
        compute: how computation takes time: a model, or picoseconds per kind of work, such as ``forward`` or
            ``gradient:conv1.weight``; None: it takes none.
        conditions: under which the cluster works: slow ranks, links that change or fail
            (`sim.scenario.conditions`), dead ranks and late messages (`collectives.virtual.faults`).  The
            computations of a straggler take longer, too; jitter is for collectives, not for messages from
            one rank to another.
        algorithm: in process groups that do not choose one; see `collectives.catalogue.selectors`.  Or
            ``native``: what the vendor runs, which is known over Gloo (see `collectives.catalogue.native`).
            None: as is assumed; on links alone ``ring``.
        assumptions: what is counted besides the links; None: what *network* brings along.
        argv: the script's arguments, without its name.
        trace: gets a span for every computation charged and every collective carried out.
        streams: returns the standard output and error of a rank; by default all share the process's.
        watch: called when rank 0 has finished an iteration, with how many it has finished, and its time in
            picoseconds.
        faults: an older name of *conditions*.
        fake: tensors on CUDA devices, and large ones of the CPU, have shapes and no data; *compute* must be a
            GPU.
        routing: of tokens to experts in a run without data: ``balanced``, ``power-law:A``, or a file; or what
            records it in a run with data (`collectives.virtual.gpu.routing`); None: balanced, with a notice.
        strict: an operation whose cost has no formula, and which the bytes that it moves do not bound, is an
            error; else a notice names it.  *compute* must be a device.
        memory_limit: of each GPU: a size; None: what its device has; beyond it ``torch.OutOfMemoryError`` is
            raised in the script.  ``off``: the script goes on, and the report says what does not fit.
        fold: whether one thread speaks for all ranks that do the same (see `collectives.virtual.folding`);
            None: without data it does, but in a small run (see `collectives.virtual.folding.attempts`).
            Or the classes to begin with, by which no rank that *conditions* name may be folded.  Needs a GPU
            as *compute*.
        own: packages that keep what a process has once in their globals, so that each rank gets a copy,
            besides those that are known (`collectives.virtual.isolation.ownership`).
        clock: that ``time.time``, ``time.sleep`` and their kin go by in the script: ``virtual``, the rank's,
            or ``real``, the machine's (see `collectives.virtual.script_clock`).
        order: who is first of ranks, and of messages to a receive from any source, at the same virtual time
            (`sim.cluster.order`), such as ``RandomOrder(seed)``; None: the least rank.  One *at any speed*
            takes neither a model of computation nor conditions.
        parameters: gets what ranks hold of their models at every step, and in the end; needs data, and every
            rank in a thread of its own.
        lenient: carry out by value what the backend that a script names refuses, or gets wrong
            (`collectives.torch_backend.backend_rules`).
        races: gets what ranks do to one tensor on several streams without a wait that orders it
            (`collectives.virtual.diagnosis.races`).  Needs a device as *compute*.
        late_among: how many GPUs the slowest is of, where late ranks are counted; None: as many as ranks.
        looks_for_shared_state: whether a notice names packages that all ranks share and that keep what one of
            them has, for which a script's ranks are searched at the ends of an iteration and of the run, in a
            tenth of a second each.
        counted: what is counted otherwise, by the names of `collectives.timing.assumptions.Counted`:
            ``transport_model="gloo"``, ``overhead="5us"``, …; no costs around calls.  Of inefficiencies
            ``late`` alone means something: that kernels of a GPU take as long as on the slowest of all ranks
            (`sim.files.late_ranks`).  The others are in what scripts launch, or of the device.

    Raises:
        ProgramError: *algorithm* is not shipped, and wrong for so many ranks.
        NetworkFileError: there is no such network.
        TopologyError: it does not have so many ranks, or does not say how many.
        ConditionError: a condition that cannot be on this network.
        LinkFailedError: a message was lost with a link; names the messages.
        RankError: a rank raised, or a script ended with another exit code than 0.  Where the memory of a GPU
            has not sufficed, its ``report`` is a `VirtualReport` up to there.
        DeadlockError: ranks wait for what no rank will do; found at once, it says what each does, in
            which collective, and which rank has called something else or nothing.
        NotSupportedError: what the vendor runs is not known for the transport model; tensors without data, or
            folding, or a limit of memory, are asked for, but computation is not on a GPU; ranks differ in too
            many ways; one of *own* cannot be copied.
        UnitError: a quantity that cannot be read.
        ValueError: there is no such transport model, or no such clock.
        OSError, ModuleNotFoundError, SyntaxError: the script cannot be read, or is no Python.
    """
    has_fabric = assumptions is None or assumptions.fabric
    topology = topology_of(DEFAULT_NETWORK if network is None else network, ranks, ideal=not has_fabric)
    if compute is None:
        model: ComputeModel = Charges(name="none but what the script charges")
    else:
        model = compute if isinstance(compute, ComputeModel) else Charges(compute)
    is_gpu = gpu_of(model) is not None
    named = None if isinstance(network, Topology) else network
    assumed = Assumptions.on(topology, named, assumptions, counted, on_gpu=is_gpu)
    algorithm = assumed.algorithm if algorithm is None else algorithm
    if algorithm != NATIVE:
        check_choice(algorithm)
    if algorithm not in OF_LIBRARY and parse_auto(algorithm) is None:
        with suppress(NotSupportedError):  # for all ranks; a group that is made may be smaller
            selector_on(topology, algorithm)
    software = assumed.software
    if assumed.model not in ("links", "library"):
        raise NotSupportedError(f"model={assumed.model!r}: a run is timed by 'links', or by the 'library'")
    if algorithm in OF_LIBRARY and assumed.model == "library":
        if topology.hardware is None:
            raise NotSupportedError(f"model='library': {topology.name} does not say what GPUs it has")
        software.check_of_library(str(algorithm))
    if algorithm == NATIVE and assumed.model == "library":
        algorithm = NCCL
    if software.is_around_calls:
        raise NotSupportedError("call_overhead, copy_bandwidth: a run counts neither; leave them out")
    transport = software.transport
    transport.check_overlap("run")
    if algorithm == NATIVE:
        native_over(transport, topology.num_ranks)
    software.rank_overhead()  # what cannot be read is refused
    if is_gpu and transport.progress == "calls":
        raise NotSupportedError(
            f"transport model {transport.name!r} on a GPU ({model.name}): its collectives go on by "
            "themselves, on a stream; take transport_model='nccl', or a CPU's model of computation"
        )
    if memory_limit is not None and not is_gpu:
        raise NotSupportedError(
            f"memory_limit: memory is followed where ranks compute on a GPU, such as h100; got {model.name}"
        )
    if software.protocol is not None:
        topology = with_protocol(topology, software.protocol)
    conditions = (*conditions, *faults)
    if order is not None and order.at_any_speed and (compute is not None or conditions):
        raise NotSupportedError(
            "order at any speed: nothing takes time, so neither compute= nor conditions= can be given"
        )
    router: Router | None = Routing.parse(routing) if isinstance(routing, str | os.PathLike) else routing
    if router is None:
        router = Routing(is_stated=False) if fake else None
    elif not is_gpu or fake != isinstance(router, Routing):
        raise NotSupportedError(
            "routing is stated for a run without data (fake=True, --fake), and recorded in one with data, "
            f"both where ranks compute on a GPU; got {model.name}, {'without' if fake else 'with'} data"
        )
    if strict and not isinstance(model, Roofline):
        raise NotSupportedError(f"strict: operations are charged by a device, such as h100; got {model.name}")
    if races is not None and not (is_gpu and isinstance(model, Roofline)):
        raise NotSupportedError(
            "races: streams are followed where ranks compute on a GPU, such as h100 (--compute h100); got "
            f"{model.name}"
        )
    setting = Setting(
        fn_or_script=fn_or_script,
        argv=argv,
        own=own,
        topology=topology,
        model=model,
        algorithm=algorithm,
        model_of_time=assumed.model,
        software=software,
        conditions=conditions,
        faults=Faults.of(conditions, topology),
        memory_limit=memory_limit,
        fake=fake,
        strict=strict,
        router=router,
        clock=clock,
        stands_still=compute is None,
        trace=trace,
        watch=watch,
        looks_for_shared_state=looks_for_shared_state,
        order=order,
        parameters=parameters,
        lenient=lenient,
        races=races,
        slowest=_slowest(software, model, late_among or topology.num_ranks),
    )
    folding = _folding(fold, fake, topology, model, conditions)
    if parameters is not None and (fake or folding is not None):
        raise NotSupportedError(
            "parameters are recorded as each rank holds them: run with data (fake=False) and without folding "
            "(fold=False)"
        )
    return in_attempts(
        setting.carry_out, folding, streams, trace, unfolds=fold is None and topology.num_ranks <= FEW_RANKS
    )


def run_virtual(fn_or_script: FunctionOrScript, topology: Topology, **options: Any) -> VirtualRun:
    """Run on *topology*, as `run` does with ``network=topology``; the former name."""
    return run(fn_or_script, network=topology, **options)


def topology_of(
    network: Topology | str | os.PathLike[str], ranks: int | None, *, ideal: bool = False
) -> Topology:
    """Return *network* with so many ranks; ports of an *ideal* one, of which there is a name, lose nothing.

    Raises:
        NetworkFileError: there is no such network.
        TopologyError: it does not have so many ranks, or does not say how many.
    """
    if not isinstance(network, Topology):
        return load_network(network, ideal=ideal).topology(ranks)
    if ranks not in (None, network.num_ranks):
        raise TopologyError(f"{network.name}: it has {network.num_ranks} ranks, but {ranks} are asked for")
    return network


def _slowest(software: Software, model: ComputeModel, num_ranks: int) -> Fraction:
    """Return how many times as long as its device says a rank computes, as the slowest of so many."""
    device = gpu_of(model)
    if device is None or not isinstance(model, Roofline) or not software.loses("late"):
        return Fraction(1)
    return slowest_on(device, num_ranks)


def _folding(
    fold: bool | Folding | None,
    fake: bool,
    topology: Topology,
    model: ComputeModel,
    conditions: Sequence[VirtualCondition],
) -> Folding | None:
    """Return how ranks are folded, but for those that conditions name; None: not at all."""
    on_gpu = gpu_of(model) is not None
    default = fake and on_gpu and topology.num_ranks > _HARDLY_ANY
    if not (default if fold is None else fold):
        return None
    if not on_gpu:
        raise NotSupportedError(
            "fold: ranks can be folded where they compute on a GPU, such as h100, whose times are apart from "
            f"data; got {model.name}"
        )
    if isinstance(fold, Folding):
        return fold
    named = (getattr(one, "rank", None) for one in conditions)
    alone = {rank for rank in named if isinstance(rank, int)}
    return Folding(topology.num_ranks, alone, topology.ranks_per_node)
