"""Every system that runs unmodified on our backend, with what it must give; the tests run them all."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, quantization_hooks
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from tests.systems import (
    checkpoints,
    data,
    data_parallel,
    functions,
    pipeline,
    sharded,
)
from tests.systems.system import System, counted_calls
from tests.systems.training import TOLERANCE, trained_alone, trained_alone_with_adam

REDUCED = frozenset({"all_reduce"})
GATHERED = frozenset({"all_gather"})
SHARDED = frozenset({"all_gather", "reduce_scatter"})
HALF = 1e-4  # gradients below 1 in steps of 2 ** -11, times the learning rate
EIGHT_BITS = 2e-3  # gradients in 255 steps, or with eight significant bits

REPLICAS = [
    System(f"ddp {name}", partial(data_parallel.replicas, **options), trained_alone, calls=REDUCED)
    for name, options in {
        "plain": {},
        "gradient views": {"gradient_as_bucket_view": True},
        "static graph": {"static_graph": True},
    }.items()
]
REPLICAS += [
    System("our ddp", data_parallel.our_replicas, trained_alone, calls=REDUCED),
    System(
        "ddp unused parameters",
        data_parallel.unused_parameters,
        data_parallel.unused_parameters_alone,
        calls=REDUCED,
    ),
    System(
        "ddp no_sync and batch norm",
        data_parallel.accumulated_with_batch_norm,
        data_parallel.accumulated_alone,
        calls=REDUCED | {"broadcast"},
    ),
    System("ddp join", data_parallel.uneven_inputs, data_parallel.uneven_inputs_alone, calls=REDUCED),
    System(
        "ddp in sub-groups", data_parallel.in_sub_groups, data_parallel.in_sub_groups_alone, 4, calls=REDUCED
    ),
    System("ddp checkpointing", data_parallel.checkpointed, trained_alone, calls=REDUCED),
    System(
        "ddp reentrant checkpointing",
        partial(data_parallel.checkpointed, use_reentrant=True),
        trained_alone,
        calls=REDUCED,
    ),
    System(
        "zero", data_parallel.optimizer_state_sharded, trained_alone_with_adam, calls=REDUCED | {"broadcast"}
    ),
    System(
        "zero overlapped",
        partial(data_parallel.optimizer_state_sharded, overlapped=True),
        trained_alone_with_adam,
        calls=REDUCED | {"broadcast"},
        other_backend="testbed",  # torch refuses Gloo
    ),
]

SPREAD = [
    System("fsdp1", sharded.flat_parameters, trained_alone, calls=SHARDED),
    System("fsdp2", sharded.each_parameter, trained_alone, calls=SHARDED),
    System("hsdp", sharded.replicated_shards, trained_alone, 4, SHARDED | REDUCED),
    System("tensor parallel", sharded.columns_then_rows, trained_alone, calls=REDUCED),
    System(
        "sequence parallel",
        sharded.along_the_sequence,
        sharded.along_the_sequence_alone,
        calls=SHARDED | REDUCED,
    ),
    System("fsdp2 x tensor parallel", sharded.with_sharded_data, trained_alone, 4, SHARDED | REDUCED),
    System(
        "dtensor redistributed",
        sharded.redistributed,
        sharded.redistributed_alone,
        calls=frozenset({"all_gather", "scatter"}),
        tolerance=0.0,
    ),
    System("checkpoint", checkpoints.saved_and_loaded, checkpoints.never_interrupted, calls=SHARDED),
    System(
        "checkpoint of rank 0", checkpoints.from_rank_0, checkpoints.on_rank_0, calls=SHARDED | {"broadcast"}
    ),
]

PIPELINES = [
    System(
        f"pipeline {name}",
        partial(pipeline.stages, schedule_class=schedule_class, stages_per_rank=stages_per_rank),
        partial(pipeline.stages_alone, stages_per_rank=stages_per_rank),
        world_size,
        frozenset({"message"}),
    )
    for name, world_size, schedule_class, stages_per_rank in [
        ("gpipe", 2, ScheduleGPipe, 1),
        ("1f1b", 4, Schedule1F1B, 1),
        ("interleaved", 2, ScheduleInterleaved1F1B, 2),
    ]
]

HOOKS = [
    System(f"hook {name}", partial(data_parallel.hooked, hook=hook), trained_alone, 2, REDUCED, tolerance)
    for name, hook, tolerance in [
        ("all-reduce", default_hooks.allreduce_hook, TOLERANCE),
        ("fp16", default_hooks.fp16_compress_hook, HALF),
        ("bf16", default_hooks.bf16_compress_hook, EIGHT_BITS),
    ]
]
HOOKS += [
    System(
        f"hook in C++ {kind}", partial(data_parallel.in_cpp, kind=kind), trained_alone, 2, REDUCED, tolerance
    )
    for kind, tolerance in [("ALLREDUCE", TOLERANCE), ("FP16_COMPRESS", HALF)]
]
HOOKS += [
    System(
        f"hook {name}", partial(data_parallel.quantized, hook=hook), trained_alone, 2, GATHERED, EIGHT_BITS
    )
    for name, hook in [
        ("quantization per tensor", quantization_hooks.quantization_pertensor_hook),
        ("quantization per channel", quantization_hooks.quantization_perchannel_hook),
    ]
]
HOOKS += [
    System("hook powersgd", data_parallel.low_rank, trained_alone, calls=REDUCED),
    System("hook post-local sgd", data_parallel.locally, data_parallel.locally_alone, calls=REDUCED),
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

COMPILED = [
    System("compiled model in ddp", data_parallel.inside, trained_alone, calls=REDUCED),
    System("compiled ddp", data_parallel.outside, trained_alone, calls=REDUCED),
]

SYSTEMS = {
    system.name: system for system in (*REPLICAS, *SPREAD, *PIPELINES, *HOOKS, *FUNCTIONS, *DATA, *COMPILED)
}


def run_in_process(rank: int, world_size: int, name: str) -> tuple[Any, Counter[str]]:
    """Run a system by its name, as a worker process can; return the result, and what was called."""
    with counted_calls() as calls:
        return SYSTEMS[name].run(rank, world_size), calls[None]
