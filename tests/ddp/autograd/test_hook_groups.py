"""Gradients are said to have come when they have, each once, whatever they were before."""

import weakref
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ddp.autograd.hook_groups import HookGroups

BEFORE = ("none", "kept", "zeroed")


@st.composite
def models(draw: Any) -> tuple[list[nn.Parameter], list[list[int]], list[int]]:
    """Parameters with gradients of before, their buckets, and an order in which they came once."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=8))
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    for parameter in parameters:
        before = draw(st.sampled_from(BEFORE))
        if before != "none":
            parameter.grad = torch.ones_like(parameter)
        if before == "zeroed":
            parameter.grad.zero_()
    order = draw(st.permutations(range(len(sizes))))
    cuts = sorted(draw(st.sets(st.integers(1, len(sizes)))) | {len(sizes)})
    buckets = [sorted(order[begin:end]) for begin, end in zip([0, *cuts], cuts, strict=False)]
    return parameters, buckets, order


def accumulate(parameter: nn.Parameter) -> None:
    (parameter * 2).sum().backward()


def groups_of(parameters, buckets, order, whole: bool = False) -> HookGroups:
    return HookGroups(parameters, buckets, order, [whole] * len(buckets), group_bytes=12)


@given(model=models(), whole=st.booleans())
def test_in_the_usual_order_each_gradient_comes_once_with_the_last_of_a_group_of_its_bucket(model, whole):
    parameters, buckets, order = model
    groups = groups_of(parameters, buckets, order, whole)
    groups.begin()
    come = []
    for index in order:
        accumulate(parameters[index])
        if index in groups.watched:
            group = groups.come_with(index)
            assert group[-1] == index
            assert sum(set(group) <= set(bucket) for bucket in buckets) == 1
            come.extend(group)

    assert sorted(come) == sorted(order)
    assert not whole or len(groups.watched) == len(buckets)
    assert [*groups.come(), *groups.end()] == []


@given(model=models(), data=st.data())
def test_in_another_order_nothing_is_said_to_come_early_and_nothing_is_lost(model, data):
    parameters, buckets, order = model
    groups = groups_of(parameters, buckets, order)
    groups.begin()
    accumulated = set()
    come = []
    now = data.draw(st.permutations(order))[: data.draw(st.integers(0, len(order)))]
    for index in now:
        accumulate(parameters[index])
        accumulated.add(index)
        group = groups.come_with(index)
        come.extend(groups.come() if group is None else group)
        assert set(come) <= accumulated
    come.extend(groups.come())

    assert sorted(come) == sorted(accumulated)


@given(model=models(), data=st.data())
def test_a_gradient_that_comes_again_is_found_at_the_end(model, data):
    parameters, buckets, order = model
    groups = groups_of(parameters, buckets, order)
    groups.begin()
    for index in order:
        accumulate(parameters[index])
        groups.come_with(index)
    again = data.draw(st.sampled_from(order))
    accumulate(parameters[again])

    assert groups.end() == [again]


def test_no_gradient_is_kept_alive_after_its_pass():
    parameter = nn.Parameter(torch.zeros(3))
    groups = groups_of([parameter], [[0]], [0])
    groups.begin()
    accumulate(parameter)
    groups.come_with(0)
    groups.end()

    assert parameter.grad is not None
    grad = weakref.ref(parameter.grad)
    parameter.grad = None
    assert grad() is None
