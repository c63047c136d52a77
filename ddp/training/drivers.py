"""Drivers of wrapped modules, made from what the user asked for: limits, readiness, checks, communicator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from collectives.communicators.connection import connect
from ddp.autograd.driver import TorchDriver
from ddp.autograd.observation.checks import GradientChecks
from ddp.autograd.options import ReductionOptions
from ddp.autograd.unused import FindUnused, Readiness, StaticGraph
from ddp.training import arguments

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator
    from ddp.training.wrapped_module import WrappedModule


def driver_of(model: WrappedModule) -> TorchDriver:
    """Return a new driver of *model*, which starts with the buckets of the first pass.

    Raises:
        NotSupportedError: the strategy does not go with an option.
    """
    arguments.refuse_elsewhere(
        model.strategy,
        find_unused_parameters=model.find_unused_parameters,
        static_graph=model.static_graph,
        mixed_precision=model.mixed_precision,
        check_gradients=model.check_gradients,
        skip_all_reduce_unused_params=model.skip_all_reduce_unused_params,
        delay_all_reduce_named_params=model._delayed,
    )
    parameters = arguments.trainable_parameters(model.module, model.parameters_to_ignore)
    members, names = list(parameters.values()), list(parameters)

    communicator = model._communicator
    if model.strategy.updates_parameters:
        communicator = _connect_apart(model)
    checks = None
    if model.check_gradients is not None:
        checks = GradientChecks(model.check_gradients, members, names)
    readiness = _readiness_of(model, names, members)
    options = _options_of(model, parameters)
    driver = TorchDriver(model.module, parameters, communicator, options, readiness, checks, model._recorder)
    driver.finished = model._buffers_of_module.finish
    return driver


def _readiness_of(model: WrappedModule, names: list[str], members: list[Parameter]) -> Readiness | None:
    if model.static_graph:
        return StaticGraph(names, members)
    return FindUnused(members) if model.find_unused_parameters else None


def _options_of(model: WrappedModule, parameters: dict[str, Parameter]) -> ReductionOptions:
    finds = model.find_unused_parameters and not model.static_graph
    first_limits, limits = arguments.first_and_later_limits(
        model.bucket_cap_mb, model.bucket_cap_mb_list, finds
    )
    return ReductionOptions(
        strategy=model.strategy,
        first_limits=first_limits,
        limits=limits,
        rebuilds=not finds,
        as_view=model.gradient_as_bucket_view,
        batched=model.batched_grad_copy,
        skips_unused=model.skip_all_reduce_unused_params,
        sparse=arguments.sparse_parameters(model.module, parameters),
    )


def _connect_apart(model: WrappedModule) -> Communicator:
    """Return a communicator over connections of its own, for collectives in an order of their own."""
    ranks = torch.distributed.get_process_group_ranks(model.process_group)
    apart = torch.distributed.new_group(ranks, use_local_synchronization=True)
    return connect(apart, model.algorithm, timeout=model.timeout, device=model.device)
