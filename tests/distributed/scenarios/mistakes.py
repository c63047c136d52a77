"""Mistakes of users: told on every rank, by name, without spoiling the calls that follow."""

import copy
import warnings
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

from collectives.errors import CollectiveTimeoutError
from ddp.buckets.flat_bucket import FlatBucket
from ddp.errors import (
    DDPError,
    GradientError,
    ModelMismatchError,
    NotSupportedError,
    ReducerError,
    UnfinishedReductionError,
)
from tests.distributed.scenarios.models import Choosing, inputs, line, net, number, numbers, resolved
from tests.distributed.scenarios.scenario import PROCESSES, Scenarios

cases = Scenarios(oracle=False)

BOTH, FIRST = (0, 1), (0,)
"""Layers that a pass uses."""


def told(error, function, *arguments):
    """Return what the error says that *function* raises."""
    with pytest.raises(error) as caught:
        function(*arguments)
    return str(caught.value)


def backward(model, use, again=None, value=1.0):
    model(number(value).requires_grad_(), use, again).sum().backward()


@cases.add(
    given=[{"widths": ([2, 3], [2, 4])}], says=[r"p1 of float32\[3\], .*, rank 1 has .* p1 of float32\[4\]"]
)
@cases.add(
    given=[{"widths": ([2, 2], [2, 2, 2])}],
    says=["rank 0 has option bucket_cap_mb=None, rank 1 has parameter p2"],
)
@cases.add(
    given=[{"widths": ([2, 3], [2, 3]), "dtypes": (torch.float32, torch.float64)}],
    says=[r"p0 of float32\[2\], strides \[1\], rank 1 has parameter p0 of float64\[2\]"],
)
def ranks_that_wrap_different_modules_all_learn_which_parameter_differs(
    make, rank, widths, dtypes=(torch.float32, torch.float32)
):
    parameters = [nn.Parameter(torch.zeros(width, dtype=dtypes[rank])) for width in widths[rank]]
    module = nn.ParameterDict({f"p{number}": own for number, own in enumerate(parameters)})
    return told(ModelMismatchError, make, module)


@cases.add(
    given=[{"by_step": False}, {"by_step": True}],
    places=PROCESSES,
    says=[
        "^Expected to have finished reduction in the prior iteration before starting",
        "passing the keyword argument `find_unused_parameters=True`",
        "which did not receive grad for rank {rank}: 1 2\n",
        "which did not receive grad for rank {rank}: layers.1.weight, layers.2.weight$",
    ],
)
def an_unused_parameter_is_named_before_gradients_are_used_and_the_next_step_works(make, rank, by_step):
    model = make(Choosing(3))
    optimizer, other = (torch.optim.SGD(own.parameters(), lr=0.1) for own in (model, Choosing(3)))
    with pytest.warns(UserWarning, match=r"without a gradient for layers\.1\.weight, layers\.2\.weight"):
        backward(model, FIRST)
    other.step()
    with torch.no_grad():
        model(number(1), FIRST)
    use = [optimizer.step] if by_step else [model, number(1), FIRST]
    message = told(UnfinishedReductionError, *use)
    model.zero_grad()
    with model.no_sync():
        backward(model, (0, 1, 2), value=rank)
    assert numbers(model) == [rank] * 3
    backward(model, (0, 1, 2), value=10 * rank)
    assert numbers(model) == [5.5] * 3
    return message


@cases.add(expected=[0.5] * 3)
def a_pass_that_an_exception_ended_does_not_spoil_the_next(make, rank):
    model = make(Choosing(2), bucket_cap_mb=1e-6)
    seen = []
    for step in range(4):
        model.zero_grad()
        if step == 2:
            handle = model.module.layers[0].weight.register_hook(lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                backward(model, BOTH, value=rank)
            handle.remove()
        else:
            backward(model, BOTH, value=rank)
            seen.append(numbers(model)[1])
    return seen


class Table(nn.Embedding):
    """A table whose gradient is sparse or not, whatever it has declared."""

    def __init__(self, declared, sparse):
        super().__init__(4, 2, sparse=declared)
        self.is_sparse = sparse

    def forward(self, index):
        return nn.functional.embedding(index, self.weight, sparse=self.is_sparse)


@cases.add(
    given=[{"sparse": True}], says=["^the gradient of weight is sparse, and its layer is no nn.Embedding"]
)
@cases.add(
    given=[{"sparse": False}], says=["^the gradient of weight is dense, but its layer has sparse=True"]
)
def a_gradient_that_is_not_of_the_declared_layout_is_refused_by_name(make, rank, sparse):
    model = make(Table(declared=not sparse, sparse=sparse))
    return told(NotSupportedError, model(torch.tensor([1])).sum().backward)


MODULES = {
    "line": line,
    "frozen": lambda: line().requires_grad_(False),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(1)),
    "synchronised": lambda: nn.Sequential(nn.SyncBatchNorm(2)),
}


@cases.add({"bucket_cap_mb_list": [1, 0]}, says=["bucket_cap_mb_list must"])
@cases.add(
    {"param_to_hook_all_reduce": nn.Parameter(torch.ones(1))}, says=["belong together; give both or none"]
)
@cases.add({"check_gradients": "nan"}, says=["must be None or one of finite, identical, got 'nan'"])
@cases.add({"device_ids": [0]}, says=["device_ids must be None"], places=PROCESSES)
@cases.add({"output_device": 0}, says=["output_device needs device_ids"])
@cases.add({"bucket_cap_mb": 0}, says=["bucket_cap_mb must be a positive number"])
@cases.add(
    {"strategy": "accumulate:k=2", "static_graph": True}, says=["static_graph needs gradients that are"]
)
@cases.add({"strategy": "waitfree"}, says=["did you mean 'wait_free'"])
@cases.add(given=[{"module": "frozen"}], says=["doesn't have any parameter that requires a gradient"])
@cases.add(given=[{"module": "lazy"}], says=[r"parameter 0\.weight has no shape yet"])
@cases.add(
    given=[{"module": "synchronised"}],
    says=["SyncBatchNorm layers only work with GPU modules: 0 is a"],
    places=PROCESSES,
)
def a_module_or_an_argument_that_is_not_supported_is_refused_by_name(make, rank, module="line"):
    return told((DDPError, ValueError), make, MODULES[module]())


@cases.add({"algorithm": "native"}, {"algorithm": "ring"}, places=["gloo"])
def a_rank_that_skips_its_backward_is_named_after_the_time_out(make, rank):
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()  # so that nobody is late when it is made
    model = make(line(), timeout=2.0)
    output = model(number(1))
    if rank == 1:
        store.wait(["rank 0 knows"], timedelta(seconds=45))
        return
    assert "rank 1" in told(CollectiveTimeoutError, output.sum().backward)
    store.set("rank 0 knows", "")


@cases.add(
    {"check_gradients": "finite"},
    given=[{"bad_rank": 1}],
    world_size=3,
    says=[r"^iteration 3: the gradient of 0\.weight that rank 1 computed holds NaN"],
)
@cases.add(
    {"check_gradients": "identical"},
    given=[{"bad_rank": 2}],
    world_size=3,
    says=[r"^iteration 3: the averaged gradient of 0\.weight differs between rank 0 and rank 2"],
)
def a_wrong_gradient_is_told_on_every_rank_with_name_rank_and_iteration(make, rank, bad_rank):
    model = make(net())
    first, second = inputs(rank, 2)
    for x in (first, second):
        model(x).sum().backward()
    if make.keywords["check_gradients"] == "identical":
        model.register_comm_hook(
            None, lambda _, bucket: resolved(bucket.buffer().fill_(1 + (rank == bad_rank)))
        )
    elif rank == bad_rank:
        first[0, 0] = float("nan")
    return told(GradientError, model(first).sum().backward)


@cases.add(places=PROCESSES, says=[r"not averaged over the ranks; call backward\(\)"])
def gradients_of_parameters_from_autograd_grad_are_warned_of(make, rank):
    model = make(net())
    (x,) = inputs(rank, 1)
    x.requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.autograd.grad(model(x).sum(), x)
        model(x).sum().backward()
        assert not caught
        torch.autograd.grad(model(x).sum(), list(model.parameters()))
    return "\n".join(str(one.message) for one in caught)


@cases.add(places=PROCESSES, expected=1)
def gradients_of_gradients_are_warned_of_once(make, rank):
    model = make(net())
    once_more = mock.patch.object(FlatBucket, "_warned", False)
    with once_more, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in inputs(rank, 2):
            model(x).square().sum().backward(create_graph=True)
    return sum("gradients of gradients are not" in str(one.message) for one in caught)


@cases.add(expected=True)
def all_ranks_raise_when_one_has_no_more_inputs_if_asked_to(make, rank):
    model = make(line())

    def train_until_somebody_ends():
        with model.join(throw_on_early_termination=True):
            for _ in range(1 + rank):
                model(number(1)).backward()

    joined, active = "Rank 0 exhausted all inputs", "Detected at least one rank that exhausted inputs"
    return (active if rank else joined) in told(RuntimeError, train_until_somebody_ends)


@cases.add(
    given=[{"second": BOTH}], says=["layers.1.weight got a gradient more often than in the first pass"]
)
@cases.add(
    given=[{"second": (1,)}], places=PROCESSES, says=["Your training graph has changed in this iteration"]
)
def a_static_graph_that_changes_is_told_with_the_parameters_name(make, rank, second):
    model = make(Choosing(2), static_graph=True)
    backward(model, FIRST)
    with warnings.catch_warnings(action="ignore"):
        message = told(DDPError, backward, model, second)
    unfinished = told(UnfinishedReductionError, model, number(1), FIRST)
    assert "Parameter indices which did not receive grad" in unfinished
    return message


@cases.add({"bucket_cap_mb": 1e-6}, says=[r"\(layers\.0\.weight\).* became ready twice"])
def a_gradient_that_changes_after_it_was_taken_is_refused(make, rank):
    model = make(Choosing(2))
    for _ in range(3):
        model.zero_grad()
        backward(model, (1, 0), again=True)
    before = numbers(model)
    model.zero_grad()
    message = told(ReducerError, backward, model, (1, 0, 0), True)
    model.zero_grad()
    backward(model, (1, 0), again=True)
    assert numbers(model) == before
    return message


@cases.add(expected=True, places=PROCESSES)
def a_gradient_that_changes_before_it_is_taken_is_averaged_whole(make, rank):
    model = make(Choosing(2))
    for _ in range(3):
        model.zero_grad()
        backward(model, (1, 0), again=True)
    model.zero_grad()
    alone = copy.deepcopy(model.module)
    for one in (model, alone):
        backward(one, (1, 0, 0), again=True)
    return numbers(model) == numbers(alone)


@cases.add(places=PROCESSES, says=["Parameters which did not receive grad", r"layers\.0\.weight$"])
def a_pass_that_reaches_no_watched_gradient_is_reduced_all_the_same(make, rank):
    model = make(Choosing())
    everything = (0, 1, 2)
    for _ in range(3):
        model.zero_grad()
        backward(model, everything)
    unwatched = tuple(index for index in everything if index not in model._driver.passes.watched)
    assert unwatched
    model.zero_grad()
    with pytest.warns(UserWarning, match=r"ended without a gradient for layers\.0\.weight"):
        backward(model, unwatched)
    message = told(UnfinishedReductionError, model, number(1), everything)
    model.zero_grad()
    backward(model, everything, value=rank)
    assert numbers(model) == [0.5, 0.5, 0.5]
    return message


@cases.add(
    world_size=1, says=["before the first backward pass", "should be called before training loop starts"]
)
def a_graph_is_declared_static_before_training_only(make, rank):
    model, late = make(net()), make(net())
    model._set_static_graph()
    for x in inputs(rank, 3):
        model(x).sum().backward()
    model._check_reducer_finalized()
    assert model.static_graph
    late(x).sum().backward()
    message = told(DDPError, late._set_static_graph)
    handle = late.module[0].bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        late(x).sum().backward()
    handle.remove()
    unfinished = told(DDPError, late._check_reducer_finalized)
    assert "Expected to have finished reduction in the prior iteration" in unfinished
    return message
