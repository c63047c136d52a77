"""Every system that runs unmodified on our backend, with what it must give; the tests run them all.

Torch's data parallelism, with hooks, compiled or with sharded optimizers, is among the scenarios of DDP.
"""

from collections import Counter
from functools import partial
from typing import Any

from torch.distributed import pipelining

from tests.systems import checkpoints, data, functions, pipeline, sharded
from tests.systems.system import System, counted_calls
from tests.systems.training import trained_alone, trained_alone_with_adam

REDUCED = frozenset({"all_reduce"})
GATHERED = frozenset({"all_gather"})
SHARDED = frozenset({"all_gather", "reduce_scatter"})

SPREAD = [
    System("fsdp1", sharded.flat_parameters, trained_alone, calls=SHARDED),
    System("fsdp2", sharded.each_parameter, trained_alone, calls=SHARDED),
    System("hsdp", sharded.replicated_shards, trained_alone, 4, SHARDED | REDUCED),
    System("tensor parallel", sharded.columns_then_rows, trained_alone, calls=REDUCED),
    System("sequence parallel", sharded.by_sequence, sharded.by_sequence_alone, calls=SHARDED | REDUCED),
    System("fsdp2 x tensor parallel", sharded.with_sharded_data, trained_alone, 4, SHARDED | REDUCED),
    System(
        "dtensor redistributed",
        sharded.redistributed,
        sharded.redistributed_alone,
        calls=frozenset({"all_gather", "scatter"}),
        tolerance=0.0,
    ),
    System("checkpoint", checkpoints.saved_and_loaded, trained_alone_with_adam, calls=SHARDED),
    System(
        "checkpoint of rank 0", checkpoints.from_rank_0, checkpoints.on_rank_0, calls=SHARDED | {"broadcast"}
    ),
]

PIPELINES = [
    System(
        f"pipeline {name}",
        partial(pipeline.stages, schedule_class=schedule_class, stages_of=stages_of),
        partial(pipeline.stages_alone, stages_of=stages_of),
        world_size,
        frozenset({"message"}),
    )
    for name, world_size, schedule_class, stages_of in [
        ("gpipe", 2, pipelining.ScheduleGPipe, pipeline.one_each),
        ("1f1b", 4, pipelining.Schedule1F1B, pipeline.one_each),
        ("interleaved", 2, pipelining.ScheduleInterleaved1F1B, pipeline.in_loops),
        ("looped breadth first", 4, pipelining.ScheduleLoopedBFS, pipeline.in_loops),
        ("interleaved zero bubble", 4, pipelining.ScheduleInterleavedZeroBubble, pipeline.in_loops),
        ("zero bubble V", 4, pipelining.ScheduleZBVZeroBubble, pipeline.there_and_back),
        ("dual pipe V", 4, pipelining.ScheduleDualPipeV, pipeline.there_and_back),
    ]
]

EVERY_KIND = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}
FUNCTIONS = [
    System(f"functions: {run.__name__}", run, expected, world_size, frozenset(calls), tolerance=0.0)
    for run, expected, world_size, calls in [
        (functions.objects, functions.objects_expected, 3, {"all_gather", "broadcast", "gather", "scatter"}),
        (functions.messages, functions.messages_expected, 3, {"message"}),
        (functions.functional, functions.functional_expected, 2, EVERY_KIND),
        (functions.gradients, functions.gradients_expected, 2, EVERY_KIND),
        (functions.groups_of_a_mesh, functions.groups_of_a_mesh_expected, 4, REDUCED),
        (functions.sub_groups, functions.sub_groups_expected, 4, REDUCED),
        (functions.coalesced, functions.coalesced_expected, 2, REDUCED | {"message"}),
    ]
]

DATA = [
    System("sampler and loader", data.loader, data.loader_expected, calls=GATHERED),
    System("loader with workers", partial(data.loader, num_workers=1), data.loader_expected, calls=GATHERED),
    System("seeds", data.seeds, data.seeds_expected, 3, frozenset({"barrier"}), tolerance=0.0),
]

SYSTEMS = {system.name: system for system in (*SPREAD, *PIPELINES, *FUNCTIONS, *DATA)}


def run_in_process(rank: int, world_size: int, name: str) -> tuple[Any, Counter[str]]:
    """Run a system by its name, as a worker process can; return the result, and what was called."""
    with counted_calls() as calls:
        return SYSTEMS[name].run(rank, world_size), calls[None]
