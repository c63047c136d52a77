"""Strategies of overlap train, clip and record as torch's DDP does with a plain optimizer."""

from itertools import accumulate, cycle, pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_

import ddp
from ddp.reduction.overlap import STRATEGIES
from sim.trace import Trace
from tests.ddp.rank_threads import OVERLAPPED
from tests.distributed.scenarios.models import inputs, net, values
from tests.distributed.scenarios.scenario import OURS, PROCESSES, Scenarios, close

cases = Scenarios()
TRAINING = [
    *(name for name, strategy in STRATEGIES.items() if strategy.num_passes == 1),
    "priority:partition_mb=0.001,credits=2",
    "zero1:prefetch=True",
]
NORMS = [{"norm_type": kind} for kind in (1.0, 2.0, float("inf"))] + [{"norm_type": 2.0, "limit": 1e6}]


def optimizer_of(make, model, kind, rate):
    """Return the optimizer that the strategy needs."""
    if make.func is OURS:
        return ddp.OverlappedOptimizer(model, lambda own: kind(own, lr=rate))
    return kind(model.parameters(), lr=rate)


class UsesAChildsWeights(nn.Module):
    """Its parameters are used by a module that never calls their owner, as in nn.MultiheadAttention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.hidden, self.last = nn.Linear(20, 50), nn.Linear(50, 30), nn.Linear(30, 3)
        self.norm = nn.BatchNorm1d(50)

    def forward(self, x):
        x = nn.functional.linear(self.norm(self.first(x)), self.hidden.weight, self.hidden.bias)
        return self.last(torch.relu(x))


@cases.add({"strategy": "priority", "algorithm": "native"})
@cases.add(*({"strategy": name, "algorithm": own} for name, own in zip(TRAINING, cycle(["ring", "native"]))))
def every_strategy_trains(make, rank):
    model = make(UsesAChildsWeights(), bucket_cap_mb=0.005)
    optimizer = optimizer_of(make, model, torch.optim.Adam, 0.01)
    seen = []
    for x in inputs(rank, 4, 8, 20):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())  # traffic of the script's own, while buckets may be on their way
        with torch.no_grad():
            seen.append(model(x))
    if make.func is OURS:
        optimizer.synchronize()
        check_rows(model)
    return seen + values(model)


def check_rows(model):
    """Check what the model says became of its buckets."""
    rows = model.bucket_rows()
    assert rows
    for row in rows:
        assert row["complete_us"] <= row["launched_us"] <= row["start_us"] <= row["end_us"]
        assert row["exposed_us"] >= 0
    once = [row["size_bytes"] for row in rows if row["collective"] not in ("all_gather", "broadcast")]
    numel = sum(parameter.numel() for parameter in model.parameters())
    assert abs(sum(once) - 4 * numel) <= 8 * len(once)


@cases.add({"strategy": "zero1"}, given=NORMS, world_size=3, alike=close)
@cases.add(
    *({"strategy": name} for name in ("wait_free", *OVERLAPPED) if name != "zero1"),
    given=NORMS[1:2],
    world_size=3,
    alike=close,
)
def every_strategy_clips_to_the_same_norms(make, rank, norm_type, limit=0.01):
    model = make(net(20, 50, 3).double(), bucket_cap_mb=0.005)
    optimizer = optimizer_of(make, model, torch.optim.SGD, 0.5)
    norms = []
    for x in inputs(rank, 4, 8, 20):
        optimizer.zero_grad()
        model(x.double()).square().mean().backward()
        norms.append(
            optimizer.clip_grad_norm_(limit, norm_type)
            if make.func is OURS
            else clip_grad_norm_(model.parameters(), limit, norm_type)
        )
        optimizer.step()
    assert min(norms) > limit or max(norms) < limit == 1e6
    if make.func is OURS:
        optimizer.synchronize()
    return norms + values(model)


@cases.add(
    *({"strategy": name} for name in ("after_backward", "per_parameter", "wait_free")),
    places=PROCESSES,
    oracle=False,
)
def a_recorder_is_told_compute_and_every_bucket_of_a_step(make, rank):
    trace = Trace()
    model = make(nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)), bucket_cap_mb=1e-6, recorder=trace)
    for _ in range(2):
        trace.spans.clear()
        model(torch.ones(1, 9)).sum().backward()
    computed, reduced = (
        [span for span in trace.spans if span.track == track] for track in ("compute", "communication")
    )
    assert {span.rank for span in trace.spans} == {rank}
    assert [span.name for span in computed[:2]] == ["forward", "gradient:1.bias"]
    assert [span.args["nbytes"] for span in reduced] == model.bucket_nbytes == [36, 324, 36, 324]
    assert all(a.end_ps <= b.start_ps for a, b in pairwise(computed))
    free_ps = accumulate((span.end_ps for span in reduced), max)
    for free, span in zip(free_ps, reduced[1:], strict=False):
        assert free <= span.start_ps or span.start_ps == span.end_ps, "it ended before an earlier one"
    if make.keywords["strategy"] == "after_backward":
        assert computed[-1].end_ps <= reduced[0].start_ps
