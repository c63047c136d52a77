"""Costs of torch's operations: arithmetic, bytes read and written, or nothing.

Arithmetic is counted by the formulas of `torch.utils.flop_counter`: matrix products, convolutions,
attention.  Everything else counts no arithmetic, as memory is what bounds it.

An operation that counts none though memory is not what bounds it (a factorization, a product without a
formula, an operation that is not torch's) is known as such, and whoever charges it says so.

Bytes are those of the tensors that the operation's schema names, elements × their size: arguments are
read, results written, what is changed in place both.  Operations whose results only look at their
arguments (views), that allocate, or that change only what a tensor says of itself are free.  Three
things the schema does not tell stand in the sets below: what is overwritten without being read, what
is read only where it is selected, and what is a view although its schema has a new tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield *value* if it is a tensor, or the tensors in the lists and dictionaries that it is made of."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def nbytes_of(value: Any) -> int:
    """Return how many bytes all tensors in *value* hold; sparse ones, what they say is there."""
    if isinstance(value, torch.Tensor):
        if value.is_sparse:
            return nbytes_of((value._indices(), value._values()))
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes_of, value))
    return 0


_aten = torch.ops.aten

COMMUNICATION = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"}
"""Namespaces of operations that are collectives: the network's, not the device's."""
_FREE_NAMESPACES = {"prim", "profiler"}
_FREE = {
    "_local_scalar_dense",
    "_unsafe_view",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "is_same_size",
    "new_empty",
    "new_empty_strided",
}
_BY_BYTES = {"aten", "fsdp", "prims"}
"""Namespaces of operations that their bytes bound, as a rule."""
_COMPUTES = re.compile(
    r"mm_?(_|$)|matmul|attention|linalg_|cholesky|[cp]dist|geqrf|ormqr|triangular_solve|^lu_"
    r"|linear_backward|transformer|(linear|gru|lstm|_rnn)$"
)
"""Names of those among them that compute."""
_MOVES = {"linalg_cross", "linalg_vector_norm", "lu_unpack"}
_OVERWRITES = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}
LIKENESSES = {
    "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "rand_like", "randn_like", "zeros_like"
}  # fmt: skip
"""Names of operations that look at the shape of their first argument alone."""
_READ, _WRITTEN, _READ_AND_WRITTEN = 1, 1, 2


def _rnn_operations(tensor: torch.Tensor, *args: Any, **_: Any) -> int:
    """Count the arithmetic of a layer over a sequence: each weight once for each vector of the input."""
    weights: int = sum(weight.numel() for weight in args[:2])
    return 2 * weights * tensor.numel() // tensor.shape[-1]


def _shapes(formula: Callable[..., int], count: int) -> Callable[..., int]:
    """Return *formula*, of the shapes of the first *count* arguments, as a formula of the arguments."""
    return lambda *args, **_: formula(*(tensor.shape for tensor in args[:count]))


def _grouped_operations(left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> int:
    """Count the arithmetic of a grouped product, of whichever dimension the groups are parts."""
    each = left.numel() * right.shape[-1]
    return 2 * (each // left.shape[0] if left.dim() == 3 and right.dim() == 2 else each)


_FORMULAS: Mapping[Any, Callable[..., int]] = {
    _aten._grouped_mm: _grouped_operations,
    _aten._scaled_dot_product_flash_attention_for_cpu: _shapes(sdpa_flop, 3),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _shapes(sdpa_backward_flop, 4),
    _aten.mkldnn_rnn_layer: _rnn_operations,
    _aten.mkldnn_rnn_layer_backward: lambda *args, **kwargs: 2 * _rnn_operations(*args, **kwargs),
}
"""Of what torch does not count, and of what the CPU runs in the place of kernels that it counts."""


def _selected(args: Sequence[Any], result: Any) -> int:
    """Count indices, and of the first argument as much as comes out of it."""
    return nbytes_of(args[1:]) + 2 * nbytes_of(result)


def _selected_in_place(args: Sequence[Any], _: Any) -> int:
    """Count indices and values, and that many values read and written."""
    return nbytes_of(args[1:]) + 2 * max(map(nbytes_of, args[1:]), default=0)


_BYTES: Mapping[str, Callable[[Sequence[Any], Any], int]] = {
    "all_gather_copy_in": lambda args, _: 2 * nbytes_of(args[0]),  # of FSDP: into its part of a long tensor
    "embedding": _selected,
    "gather": _selected,
    "index": _selected,
    "index_add_": _selected_in_place,
    "index_copy_": _selected_in_place,
    "index_put_": _selected_in_place,
    "index_select": _selected,
    "nll_loss_forward": _selected,
    "scatter_": _selected_in_place,
    "scatter_add_": _selected_in_place,
    "take": _selected,
}
"""Of what reads or writes one of its tensors only where another says."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One overload of one of torch's operations.

    Attributes:
        free: it costs nothing.
        communicates: it is a collective.
        decomposes: it is made of others, which are what costs.
        formula: of its arithmetic, or None.
        bounded: its cost has a formula, or its bytes bound it.
        convolves: it is a convolution.
        selects: of its bytes, where the schema does not tell, or None.
        passes: how often each argument's bytes cross the memory, by position.
        named_passes: the same by name.
        writes: which of its results are new memory.
        is_view: its results look at its first argument.
        mutates: it writes into one of its arguments.
        changes: positions and names of those into which it writes.
        mutates_kinds: it changes what an argument says of itself, such as its shape.
        resizes: it may, of arguments given as ``out``.
        depends_on_data: the number of its results, or of their elements, does; of one that indexes only where
            indices are masks.
        indexes: it selects by indices.
        draws: it draws random numbers.
    """

    free: bool
    communicates: bool
    decomposes: bool
    formula: Callable[..., int] | None
    bounded: bool
    convolves: bool
    selects: Callable[[Sequence[Any], Any], int] | None
    passes: Sequence[int]
    named_passes: Mapping[str, int]
    writes: Sequence[bool]
    is_view: bool
    mutates: bool
    changes: Mapping[int, str]
    mutates_kinds: bool
    resizes: bool
    depends_on_data: bool
    indexes: bool
    draws: bool

    @classmethod
    def of(cls, function: Any) -> Operation:
        """Return what is known of the overload *function*."""
        packet, schema, tags = function.overloadpacket, function._schema, function.tags
        name, namespace = packet.__name__, function.namespace
        formula = _FORMULAS.get(packet) or flop_registry.get(packet)
        random_in_place = torch.Tag.inplace in tags and torch.Tag.nondeterministic_seeded in tags
        overwrites = random_in_place or name in _OVERWRITES
        passes = [
            0 if name in LIKENESSES and position == 0 else _passes(argument, overwrites and position == 0)
            for position, argument in enumerate(schema.arguments)
        ]

        return cls(
            free=(
                name in _FREE
                or namespace in _FREE_NAMESPACES
                or function.is_view
                or torch.Tag.inplace_view in tags
            ),
            communicates=namespace in COMMUNICATION,
            decomposes=formula is None and function._can_decompose(),
            formula=formula,
            bounded=formula is not None
            or (namespace in _BY_BYTES and (name in _MOVES or not _COMPUTES.search(name))),
            convolves="convolution" in name,
            selects=_BYTES.get(name),
            passes=passes,
            named_passes={argument.name: n for argument, n in zip(schema.arguments, passes, strict=True)},
            writes=[result.alias_info is None for result in schema.returns],
            is_view=function.is_view,
            mutates=schema.is_mutable,
            changes={
                number: own.name
                for number, own in enumerate(schema.arguments)
                if own.alias_info is not None and own.alias_info.is_write
            },
            mutates_kinds=torch.Tag.inplace_view in tags,
            resizes=any(own.is_out for own in schema.arguments),
            depends_on_data=torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags,
            indexes=name in ("index", "index_put", "index_put_", "_index_put_impl_"),
            draws=torch.Tag.nondeterministic_seeded in tags,
        )

    def changed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments into which a call writes."""
        return [
            args[number] if number < len(args) else kwargs[name]
            for number, name in self.changes.items()
            if number < len(args) or name in kwargs
        ]

    def nbytes(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
        """Return how many bytes a call reads and writes."""
        if self.selects is not None:
            return self.selects(args, result)
        total = 0
        for value, times in zip(args, self.passes, strict=False):
            total += times * nbytes_of(value)
        for name, value in kwargs.items():
            total += self.named_passes.get(name, _READ) * nbytes_of(value)
        if len(self.writes) == 1:
            return total + nbytes_of(result) if self.writes[0] else total
        return total + sum(
            nbytes_of(part) for part, new in zip(result or (), self.writes, strict=False) if new
        )


@cache
def operation_of(func: Any) -> Operation:
    """Return what is known of the overload *func*."""
    return Operation.of(func)


def named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call by name, with the defaults of those that are left out."""
    schema = func._schema.arguments
    values = {argument.name: argument.default_value for argument in schema}
    values.update(zip((argument.name for argument in schema), args, strict=False))
    values.update(kwargs)
    return values


_MASKS = (torch.bool, torch.uint8)


def is_mask(index: Any) -> bool:
    """Return whether an index of a tensor selects by truth values."""
    return isinstance(index, torch.Tensor) and index.dtype in _MASKS


def waits_for_data(operation: Operation, args: Sequence[Any]) -> bool:
    """Return whether the host needs to know values of the device to carry out a call."""
    if not operation.indexes:
        return operation.depends_on_data
    masks = [own for own in args[1] if is_mask(own)]
    return bool(masks) and not (len(masks) == len(args[1]) == 1 and _is_filling(args[2:]))


def _is_filling(given: Sequence[Any]) -> bool:
    """Return whether a call of ``index_put`` with one mask is carried out as ``masked_fill``.

    So is one with a number of the host.  Source: ``canDispatchToMaskedFill`` in torch,
    aten/src/ATen/native/TensorAdvancedIndexing.cpp.
    """
    if not given or any(given[1:]):
        return False
    value = given[0]
    return bool(value.device.type == "cpu" and value.numel() == 1)


def first_tensor(values: Any) -> torch.Tensor | None:
    """Return the first tensor among *values*, and in lists among them."""
    if isinstance(values, torch.Tensor):
        return values
    if isinstance(values, (list, tuple)):
        for value in values:
            found = first_tensor(value)
            if found is not None:
                return found
    return None


def _passes(argument: Any, overwritten: bool) -> int:
    if argument.alias_info is None or not argument.alias_info.is_write:
        return _READ
    if overwritten or argument.is_out or argument.name == "out":
        return _WRITTEN
    return _READ_AND_WRITTEN
