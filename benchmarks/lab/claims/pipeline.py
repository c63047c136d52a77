"""Claim on pipelines: how many micro-batches keep the stages busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.lab.claims.claim import Case, Claim, Finding
from testbed.output.table import percent

STAGES = 4
PER_STAGE = (1, 2, 4, 8)
ENOUGH = 4
FORWARD, BACKWARD = "1ms", "2ms"

LARGEST_WITH_ENOUGH, SMALLEST_WITH_FEW = 0.20, 0.30

CLAIM = Claim(
    "C12",
    "Pipeline parallelism wants at least 4 times as many micro-batches as stages; fewer leave large bubbles.",
)


def pipeline() -> Finding:
    """Run torch's schedules in virtual time and compare their bubbles with the closed form."""
    cases = []
    for schedule in ("GPipe", "1F1B"):
        for per_stage in PER_STAGE:
            micro_batches = per_stage * STAGES
            bubble = _bubble(schedule, micro_batches)
            formula = (STAGES - 1) / (micro_batches + STAGES - 1)
            enough = per_stage >= ENOUGH
            holds = bubble <= LARGEST_WITH_ENOUGH if enough else per_stage > 1 or bubble >= SMALLEST_WITH_FEW
            cases.append(
                Case(
                    {"micro-batches": f"with {per_stage} S micro-batches", "schedule": f"by {schedule}"},
                    f"{percent(bubble)} bubble, closed form {percent(formula)}",
                    holds,
                    {"bubble": bubble, "closed_form": formula, "micro_batches": micro_batches},
                )
            )
    return Finding(
        CLAIM,
        f"S = {STAGES} stages on 4 ranks of dgx-h100, torch's own schedules in virtual time; a micro-batch "
        f"computes {FORWARD} forward and {BACKWARD} backward on each stage; closed form (S - 1) / (M + S - "
        "1)",
        "simulated",
        "with 4 S micro-batches or more the bubble is at most 20 % of the step, with S at least 30 %",
        tuple(cases),
    )


def _bubble(schedule: str, micro_batches: int) -> float:
    """Return the part of a steady step in which a stage computes nothing."""
    from collectives.virtual import run

    outcome = run(_rank_of(schedule, micro_batches), STAGES, "dgx-h100")
    last = outcome.report.iterations[-1]
    return 1 - sum(spent.compute_seconds for spent in last) / sum(spent.seconds for spent in last)


def _rank_of(schedule: str, micro_batches: int) -> Callable[[int], None]:
    """Return what a rank does: two steps of *schedule*, each an iteration."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    from collectives.virtual import compute, end_iteration

    class Charge(torch.autograd.Function):
        """The identity, whose passes take a stated time."""

        @staticmethod
        def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
            compute(FORWARD)
            return values.clone()

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
            compute(BACKWARD)
            return gradients[0].clone()

    class Stage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return Charge.apply(values * self.scale)  # type: ignore[no-any-return,no-untyped-call]

    def rank_of(rank: int) -> None:
        dist.init_process_group("gloo")
        stage = PipelineStage(Stage(), rank, STAGES, torch.device("cpu"))
        of_name = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[schedule]
        steps = of_name(stage, micro_batches, loss_fn=torch.nn.functional.mse_loss)
        values = torch.ones(micro_batches, 1)
        given = (values,) if rank == 0 else ()
        target = values if rank == STAGES - 1 else None
        for _ in range(2):
            steps.step(*given, target=target)
            dist.barrier()
            end_iteration()

    return rank_of
