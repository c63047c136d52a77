"""Random models train as with torch's DDP: branches, shared, unused and sparse parameters, dtypes, caps.

Parameters and inputs are small integers and losses are multiples of the world size, so that every
sum is exact in any order: gradients must agree bit for bit.  (Divided by 3, such sums happen to stay
exact; beyond that, only powers of two do when algorithms add up in other orders than torch's.)
"""

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from tests.distributed.scenarios.scenario import Scenario

pytestmark = pytest.mark.distributed

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
WIDTH = 3


@dataclass(frozen=True)
class Branch:
    """One branch of a model: a weight per factor, drawn by index, so that weights can be shared."""

    weights: tuple[int, ...]
    used_by: tuple[bool, ...]
    """In step s, rank r runs this branch if entry ``(r + s) % len`` is true."""


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    branches: tuple[Branch, ...]
    sparse: bool
    always: tuple[int, ...]
    ignored: int
    """The weight of an output that the loss does not use."""


class Branching(nn.Module):
    """Sums branches; a branch multiplies its input by sums of its weights."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan
        generator = torch.Generator().manual_seed(len(plan.sizes))
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randint(-1, 2, (size,), generator=generator).to(DTYPES[dtype]))
            for size, dtype in zip(plan.sizes, plan.dtypes, strict=True)
        )
        self.table = nn.Embedding(6, WIDTH, sparse=True) if plan.sparse else None
        if self.table is not None:
            nn.init.ones_(self.table.weight)

    def forward(self, x, rows, when):
        total = x.sum()
        for index in self.plan.always:
            total = total + self.weights[index].float().sum() * x[0]
        for branch in self.plan.branches:
            if branch.used_by[when % len(branch.used_by)]:
                for index in branch.weights:
                    total = total + (self.weights[index].float() * x[: 1 + index % 2].sum()).sum()
        ignored = self.weights[self.plan.ignored].float().sum() * 2
        outputs = [total, ignored]
        if self.table is not None:
            outputs[0] = outputs[0] + self.table(rows).sum()
        return outputs


def train_random_model(make, rank, plan):
    model = make(Branching(plan))
    generator = torch.Generator().manual_seed(rank)
    seen = []
    for step in range(4):
        if step != 2:
            model.zero_grad(set_to_none=step % 2 == 0)
        x = torch.randint(-2, 3, (WIDTH,), generator=generator).float()
        rows = torch.randint(0, 6, (2,), generator=generator)
        when = 0 if make.keywords.get("static_graph") else rank + step
        (model(x, rows, when)[0] * dist.get_world_size()).backward()
        seen += [None if p.grad is None else p.grad.to_dense().clone() for p in model.parameters()]
    return seen


@st.composite
def plans(draw, kind):
    num = draw(st.integers(1, 7))
    sizes = tuple(draw(st.lists(st.integers(1, 40), min_size=num, max_size=num)))
    dtypes = tuple(draw(st.lists(st.sampled_from(sorted(DTYPES)), min_size=num, max_size=num)))
    indices = st.lists(st.integers(0, num - 1), min_size=1, max_size=4).map(tuple)
    used_by = st.lists(st.booleans(), min_size=1, max_size=3).map(tuple)
    branches = tuple(draw(st.lists(st.builds(Branch, indices, used_by), max_size=3)))
    always = tuple(range(num)) if kind == "plain" else (draw(st.integers(0, num - 1)),)
    # Torch's static graph fails on a parameter that only such an output uses.
    ignored = draw(st.integers(0, num - 1)) if kind == "find_unused_parameters" else always[0]
    return Plan(sizes, dtypes, branches, draw(st.booleans()), always, ignored)


@st.composite
def settings_of_ddp(draw):
    kind = draw(st.sampled_from(["plain", "find_unused_parameters", "static_graph"]))
    options = {} if kind == "plain" else {kind: True}
    caps = draw(st.sampled_from([None, 1e-5, 1e-4, [1e-5, 5e-5]]))
    options["bucket_cap_mb_list" if isinstance(caps, list) else "bucket_cap_mb"] = caps
    options["gradient_as_bucket_view"] = draw(st.booleans())
    options["batched_grad_copy"] = draw(st.booleans())
    return draw(plans(kind)), options


OURS_ALONE = {
    "strategy": st.sampled_from(["wait_free", "after_backward", "per_parameter"]),
    "algorithm": st.sampled_from([None, "ring", "swing", "native"]),
}


@pytest.mark.parametrize(
    ("place", "share", "sizes"), [("gloo", 1 / 5, (1, 2, 3, 4)), ("threads", 1 / 4, (1, 2, 4, 8))]
)
def test_random_models_train_bit_for_bit_as_with_torch(pool, place, share, sizes):
    @settings(
        max_examples=round(share * settings.default.max_examples),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn=settings_of_ddp(), own=st.fixed_dictionaries(OURS_ALONE), world_size=st.sampled_from(sizes))
    def check(drawn, own, world_size):
        plan, options = drawn
        own = own if world_size != 3 else {"algorithm": "native"}
        scenario = Scenario(
            train_random_model, {**options, **own}, {"plan": plan}, world_size, places=[place]
        )
        scenario.check(pool, place)

    check()
