"""Context parallelism of each rank: what torch's ``context_parallel`` changes for the process while it lasts.

It puts a function of its own, which knows the rank's mesh, in the place of attention, and adds rules to
DTensor.  Of ranks that are threads, the first to enter would do so for all, and the first to leave, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as functional

_PACKAGE = "torch.distributed.tensor.experimental._context_parallel"
_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True)
class State:
    """What is in place for one rank.

    Attributes:
        attention: the function, torch's own or that of context parallelism.
        of_module: attributes of torch's module, by name.
        registered: what puts back DTensor's rules, by operation; empty outside of context parallelism.
        originals: the rules that it will put back.
        rules: those that are in place, and what is said of arguments, by operation.
    """

    attention: Any
    of_module: dict[str, Any]
    registered: dict[Any, Any]
    originals: dict[Any, Any]
    rules: dict[Any, tuple[Any, Any]]


def get() -> State | None:
    """Return what is in place; None where nobody has imported context parallelism, which takes long."""
    module, rules = _modules()
    if module is None:
        return None
    propagator = _propagator(module)
    return State(
        getattr(functional, _ATTENTION),
        {name: getattr(module, name) for name in _first(module)},
        rules._cp_strategy_contexts,
        rules._original_strategies,
        {
            op: (propagator.op_strategy_funcs.get(op), propagator.op_to_schema_info.get(op))
            for op in rules._cp_strategy_contexts
        },
    )


def put(state: State | None) -> None:
    """Put *state* in place; None: what a new process has."""
    module, rules = _modules()
    if module is None:
        return
    attention = getattr(functional, _ATTENTION)
    _, torchs_own = module._replaced_functions.get(attention, ("", attention))
    _place(module, rules._original_strategies)
    if state is None:
        state = State(torchs_own, _first(module), {}, {}, {})

    setattr(functional, _ATTENTION, state.attention)
    for name, value in state.of_module.items():
        setattr(module, name, value)
    rules._cp_strategy_contexts, rules._original_strategies = state.registered, state.originals
    _place(module, state.rules)


def operations() -> Iterable[Any]:
    """Return the operations that DTensors handle themselves while context parallelism lasts."""
    module, _ = _modules()
    return () if module is None else module.custom_ops


def _modules() -> tuple[Any, Any]:
    """Return torch's module and that of its rules; None where they have not been imported whole."""
    module, rules = (sys.modules.get(f"{_PACKAGE}.{name}") for name in ("_attention", "_sharding_rules"))
    return (module, rules) if rules is not None and hasattr(module, "_replaced_functions") else (None, None)


def _first(module: Any) -> dict[str, Any]:
    """Return what a new process has in attributes of torch's module."""
    handled = module.existing_custom_ops
    return {
        "_replaced_functions": {},
        "_dispatch_mode": module._DispatchMode.MONKEY_PATCH,
        "_cp_options": type(module._cp_options)(),
        "existing_custom_ops": {
            op: function for op, function in handled.items() if op not in module.custom_ops
        },
    }


def _place(module: Any, rules: dict[Any, tuple[Any, Any]]) -> None:
    """Put rules, and what is said of arguments, in place, or away where there are none."""
    propagator = _propagator(module)
    for op, found in rules.items():
        tables = propagator.op_strategy_funcs, propagator.op_to_schema_info
        for table, value in zip(tables, found, strict=True):
            if value is None:
                table.pop(op, None)
            else:
                table[op] = value


def _propagator(module: Any) -> Any:
    return module.DTensor._op_dispatcher.sharding_propagator
