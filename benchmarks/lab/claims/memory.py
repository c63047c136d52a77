"""Claim on sharding: what ZeRO's stages and FSDP leave on each GPU, and what they send for it.

Memory is a closed form of model states in mixed precision with Adam: parameters and gradients in 16 bits,
and 12 bytes of optimizer's state for each parameter (Rajbhandari et al., "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", SC 2020, section 3.1 and figure 1).  Stage 1 divides the optimizer's
state between the ranks, stage 2 the gradients too, stage 3 the parameters too.  FSDP is stage 3 with what it
gathers: the parameters of two units, as the next is fetched while one computes, those that are in no unit,
and the gradients of one unit before they are scattered.

Activations and fragmentation are not in it; data parallelism divides neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lab.claims.claim import Case, Claim, Finding
from testbed.output.table import percent, seconds

PARAMETER_BYTES, GRADIENT_BYTES, STATE_BYTES = 2, 2, 12
MODEL = "mpt-7b"
RANKS = (8, 64)
STAGES = (1, 2, 3)
NEAR_LINEAR = 0.8

CLAIM = Claim(
    "C13",
    "ZeRO stages 1, 2, 3 and FSDP cut memory per GPU near-linearly with the number of GPUs, at a stated "
    "cost in communication.",
)


def zero_bytes(parameters: int, ranks: int, stage: int) -> float:
    """Return the bytes of model states on each of *ranks* GPUs; stage 0 shards nothing.

    Args:
        parameters: number of them.
        ranks: between which states are divided.
        stage: of ZeRO, 0 to 3.

    Raises:
        ValueError: there is no such stage.
    """
    if not 0 <= stage <= 3:
        raise ValueError(f"stage must be 0 to 3, got {stage}")
    whole = {
        0: PARAMETER_BYTES + GRADIENT_BYTES + STATE_BYTES,
        1: PARAMETER_BYTES + GRADIENT_BYTES,
        2: PARAMETER_BYTES,
        3: 0,
    }[stage]
    total = PARAMETER_BYTES + GRADIENT_BYTES + STATE_BYTES
    return parameters * (whole + (total - whole) / ranks)


def fsdp_bytes(units: Sequence[int], rest: int, ranks: int) -> float:
    """Return the bytes of model states on each of *ranks* GPUs while FSDP computes.

    Args:
        units: parameters of each wrapped module.
        rest: parameters that are in none, and stay gathered.
        ranks: between which states are divided.
    """
    parameters = sum(units) + rest
    two_largest = sum(sorted(units)[-2:])
    gathered = PARAMETER_BYTES * (two_largest + rest) + GRADIENT_BYTES * max(units)
    return zero_bytes(parameters, ranks, 3) + gathered * (ranks - 1) / ranks


def memory() -> Finding:
    """Divide the states of a model of 6.7 billion parameters, and time what is sent for it."""
    from ddp.profiles import load_profile

    rest, *units = (gradient.numel for gradient in load_profile(MODEL).gradients)
    parameters = rest + sum(units)
    alone = zero_bytes(parameters, 1, 0)
    cases = []
    for ranks in RANKS:
        kinds = {
            f"with stage {stage}": (zero_bytes(parameters, ranks, stage), stage == 3) for stage in STAGES
        }
        kinds["with FSDP"] = fsdp_bytes(units, rest, ranks), True
        for kind, (nbytes, gathers_twice) in kinds.items():
            cut = alone / nbytes
            sent = _sent_seconds(parameters, ranks, gathers_twice) / _all_reduce_seconds(parameters, ranks)
            cases.append(
                Case(
                    {"kind": kind, "ranks": f"on {ranks} GPUs"},
                    f"{nbytes / 1e9:.1f} GB, 1/{cut:.1f} of {alone / 1e9:.0f} GB; communication x {sent:.2f}",
                    cut >= NEAR_LINEAR * ranks,
                    {"bytes": nbytes, "cut": cut, "communication": sent},
                )
            )
    together = _all_reduce_seconds(parameters, RANKS[-1])
    return Finding(
        CLAIM,
        f"MPT-7B ({parameters / 1e9:.2f} billion parameters), mixed precision with Adam: 2 + 2 + 12 bytes "
        "each; communication: gradients all-reduced, or scattered and parameters gathered once (stages 1, "
        "2) or twice (stage 3, FSDP), all in 16 bits, on dgx-a100 by NCCL's model",
        ("closed form", "simulated"),
        f"memory is at most 1 / ({NEAR_LINEAR:g} x GPUs) of that of one GPU",
        tuple(cases),
        "Optimizer, gradients and parameters only; activations are not divided. Communication is relative "
        f"to the all-reduce without sharding, which takes {seconds(together)} on {RANKS[-1]} GPUs. In a "
        f"step on {RANKS[-1]} H100 (dgx-h100, NCCL's model) computation waits for communication "
        f"{percent(_exposed('fsdp'))} of the time with FSDP, {percent(_exposed('wait_free'))} without "
        "sharding.",
    )


def _exposed(strategy: str) -> float:
    """Return the part of a step of the model in which computation waits, trained by *strategy*."""
    from ddp import load_profile, simulate_step
    from sim import load_network

    topology = load_network("dgx-h100").topology(RANKS[-1])
    profile = load_profile(MODEL)
    run = simulate_step(profile, topology=topology, strategy=strategy, algorithm="auto", model="nccl")
    return run.exposed_seconds / run.seconds


def _all_reduce_seconds(parameters: int, ranks: int) -> float:
    return _collective_seconds("all_reduce", GRADIENT_BYTES * parameters, ranks)


def _sent_seconds(parameters: int, ranks: int, gathers_twice: bool) -> float:
    gathered = _collective_seconds("all_gather", PARAMETER_BYTES * parameters, ranks)
    scattered = _collective_seconds("reduce_scatter", GRADIENT_BYTES * parameters, ranks)
    return scattered + (2 if gathers_twice else 1) * gathered


def _collective_seconds(collective: str, nbytes: int, ranks: int) -> float:
    from collectives.timing import simulate
    from sim import load_network

    topology = load_network("dgx-a100").topology(ranks)
    run = simulate("auto", nbytes=nbytes, topology=topology, collective=collective, model="nccl")
    return run.seconds
