"""Operations whose outcome depends on data: answered where it is known, else by a rule or not at all.

Without data a number that is read from the device is NaN, whatever its type, and a truth value is False; a
notice says so once, and of truth values at which lines; if a rank fails, its error says where it has read
last.  An integer that Python needs as one, as a size or an index, and results whose size depends on data are
refused with the line, also where torch asks for it in C++ and fails because of the NaN.  What is copied to
the CPU stays unknown there but for numbers with a NaN.  An ordinary tensor of the CPU into which something
unknown is written, or received, keeps nothing of what it held: numbers are NaN, integers 0, truth values
False, with a notice.

Operations on sparse tensors, which torch's FakeTensors do not bear, are refused by name.

``torch.cond`` carries out the branch that the data says, as any other code.  Torch alone would trace both
with its compiler, which keeps what it has compiled for the process and does not look below modes; so the
other branch is neither run nor compared.  Gradients of what only that branch uses are None; torch's are
zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from traceback import walk_tb
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from collectives.errors import CollectiveError, NotSupportedError
from collectives.virtual.diagnosis.places import current_place, is_users, spell_line
from collectives.virtual.gpu.values import forget, value_of
from collectives.virtual.isolation.patching import on_ranks, replaced
from collectives.virtual.notices import Notices
from sim.cluster import RankThread, current_rank_thread

NO_NUMBERS = "without data numbers read from the device are NaN"
NO_INTEGERS = "without data integers read from the device are NaN, and no size, index or range"
NO_TRUTH = "without data truth values read from the device are False"
NAN_ON_HOST = "without data numbers copied to the CPU, or written into tensors there, are NaN"
ZERO_ON_HOST = "without data integers written into tensors of the CPU are 0, truth values False"


def number(tensor: Tensor, notices: Notices) -> float | bool:
    """Return what stands for the element of *tensor*, which has no value."""
    if tensor.dtype is torch.bool:
        place = current_place()
        notices.add_read(NO_TRUTH, place, place or None)
        return False
    notices.add_read(NO_NUMBERS if has_stand_in(tensor.dtype) else NO_INTEGERS, current_place())
    return math.nan


@contextmanager
def unknown_integers_named(notices: Notices) -> Iterator[None]:
    """Say of an error of a rank's line that reads an integer which is not known that this is the cause.

    Torch reads sizes and indices that are tensors in C++, and has words of its own for a NaN.

    Raises:
        NotSupportedError: in the place of that error.
    """
    try:
        yield
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        steps = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
        places = [spell_line(path, line) for path, line in steps if is_users(path)]
        is_refusal = isinstance(error, CollectiveError)
        if is_refusal or not places or not notices.has_just_read(NO_INTEGERS, places[-1]):
            raise
        what = f"an integer read from a tensor, by which {type(error).__name__} is raised,"
        raise _refusal(what, places[-1]).with_traceback(error.__traceback__) from None


def has_stand_in(dtype: torch.dtype) -> bool:
    """Return whether tensors of the CPU can say that they are not known, by a NaN."""
    return dtype.is_floating_point or dtype.is_complex


def stand_in(tensor: Tensor, dtype: torch.dtype, notices: Notices) -> Tensor:
    """Return a tensor of the CPU in the place of the data of *tensor*: NaN, or where there is none 0."""
    if has_stand_in(dtype):
        notices.add_read(NAN_ON_HOST, current_place())
        return torch.full(tensor.shape, math.nan, dtype=dtype)
    place = current_place()
    notices.add_read(ZERO_ON_HOST, place, place)
    return torch.zeros(tensor.shape, dtype=dtype)


def lose(tensor: Tensor) -> None:
    """Let what is in *tensor* be unknown: in an ordinary one of the CPU stands what says so."""
    if isinstance(tensor, FakeTensor):
        forget(tensor)
        return
    rank_thread = current_rank_thread()
    if rank_thread is not None and not tensor.is_meta:
        tensor.copy_(stand_in(tensor, tensor.dtype, Notices.of(rank_thread.cluster)))


def array(tensor: Tensor, *, force: bool = False) -> Any:
    """Return the elements of *tensor* as an array of NumPy, as ``Tensor.numpy`` does.

    Raises:
        NotSupportedError: they are not known.
        TypeError: it is on a device, and not to be copied by *force*.
    """
    if tensor.device.type != "cpu" and not force:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )
    plain = on_host(tensor)
    if plain is None:
        refuse(f"an array of {spelled(tensor)}")
    return plain.numpy(force=force)


def listed(rank_thread: RankThread, tensor: Tensor) -> Any:
    """Return the elements of *tensor* in lists, as ``Tensor.tolist`` does; NaN where they are not known.

    Raises:
        NotSupportedError: they are not known, and can be no NaN.
    """
    if tensor.dim() == 0:
        return tensor.item()
    if value_of(tensor) is None and not has_stand_in(tensor.dtype):
        refuse(f"a list of {spelled(tensor)}")
    plain = on_host(tensor)
    if plain is None:
        with _disable_current_modes():
            plain = stand_in(tensor, tensor.dtype, Notices.of(rank_thread.cluster))
    return plain.tolist()


def on_host(tensor: Tensor) -> Tensor | None:
    """Return an ordinary tensor of the CPU with what the host reads of *tensor*; None where there is none.

    A tensor of the CPU, or a copy of more than `collectives.virtual.gpu.rules.LARGE` elements there, is as
    virtual as one of the device, and has no NaN for what is not known.
    """
    plain = value_of(tensor.detach().cpu())
    return None if plain is None or plain.is_meta or isinstance(plain, FakeTensor) else plain


def element(tensor: Tensor) -> Any:
    """Return the only element of *tensor*, NaN if it is not known, as ``Tensor.item`` does.

    C++ that makes a tensor of a list asks those in it for their numbers beneath the dispatch to modes, where
    it would look for the memory of a tensor of the CPU, which has none; so that dispatch is put back.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    if not excluded.has(DispatchKey.Python):
        return tensor.item()
    excluded = excluded.remove(DispatchKey.Python).remove(DispatchKey.PythonTLSSnapshot)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        return tensor.item()


def as_number(kind: type) -> Callable[[Tensor], Any]:
    """Return a method such as ``__float__``, which gives the only element of a tensor as one of *kind*."""
    return lambda tensor: kind(element(tensor))


def written(tensor: FakeTensor, form: str) -> str:
    """Return *tensor* in the form of a format string, such as ``.2f``.

    Raises:
        NotSupportedError: it is not known, and a NaN has no such form.
    """
    if tensor.dim():
        return format(repr(tensor), form)
    try:
        return format(tensor.item(), form)
    except ValueError:
        if value_of(tensor) is None:
            refuse(f"{spelled(tensor)} in the form {form!r}")
        raise


def capsule(tensor: Tensor, **options: Any) -> Any:
    """Return *tensor* for another library, as ``Tensor.__dlpack__`` does.

    Raises:
        NotSupportedError: it is on a virtual device, which has no memory, or not known.
    """
    if tensor.is_cuda:
        raise NotSupportedError(
            f"DLPack of {spelled(tensor)}: a virtual device has no memory; copy it to the CPU first: .cpu()"
        )
    plain = on_host(tensor)
    if plain is None:
        refuse(f"DLPack of {spelled(tensor)}")
    return plain.__dlpack__(**options)


def spelled(tensor: Tensor) -> str:
    """Return what *tensor* is, in words."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"a tensor ({dtype}, shape {[*tensor.shape]}, on {tensor.device})"


def refuse(what: str) -> NoReturn:
    """Refuse *what*, which depends on data that there is not.

    Raises:
        NotSupportedError: always; names the script's line.
    """
    raise _refusal(what, current_place())


def _refusal(what: str, place: str) -> NotSupportedError:
    return NotSupportedError(
        f"{what} depends on data{f', at {place}' if place else ''}, and a run without data has none; "
        "leave it out, or run with data: without --fake"
    )


def integer(tensor: Any) -> int:
    """Return the integer that *tensor* holds, where Python needs one.

    Raises:
        NotSupportedError: it is not known.
    """
    value = element(tensor)
    if isinstance(value, float) and math.isnan(value):
        refuse(f"the integer of {spelled(tensor)}")
    return int(value)


def refuse_if_sparse(func: Any, args: Any, kwargs: Any, error: Exception) -> None:
    """Say of an operation that has ended in *error* that it is one on sparse tensors, if it is.

    Raises:
        NotSupportedError: it is.
    """
    given = tree_leaves((args, kwargs))
    layouts = {value.layout if isinstance(value, Tensor) else value for value in given}
    layouts = {layout for layout in layouts if isinstance(layout, torch.layout)} - {torch.strided}
    if layouts or "sparse" in str(func):
        said = str(error).split(". ")[0]
        raise NotSupportedError(
            f"{func} does not go with sparse tensors on virtual CUDA devices ({said}); keep them on the CPU, "
            "or take dense ones, such as the gradients of nn.Embedding(sparse=False)"
        ) from None


def branches_of_torch() -> AbstractContextManager[None]:
    """Return a context in which ``torch.cond`` takes branches on ranks."""
    original = torch.cond

    def cond(_: RankThread, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
        if not isinstance(pred, Tensor) or torch.compiler.is_compiling():
            return original(pred, true_fn, false_fn, operands)
        _check(pred, true_fn, false_fn, operands)
        if isinstance(pred, FakeTensor) and value_of(pred) is None:
            refuse("the branch that torch.cond takes")
        return true_fn(*operands) if pred else false_fn(*operands)

    return replaced([(torch, "cond", on_ranks(original, cond))])


def _check(pred: Tensor, true_fn: Any, false_fn: Any, operands: Any) -> None:
    """Check arguments as torch does.

    Raises:
        RuntimeError: torch would refuse them.
    """
    if pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    are_tensors = pytree.tree_all(lambda leaf: isinstance(leaf, Tensor), operands)
    if not isinstance(operands, (tuple, list)) or not are_tensors:
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands}."
        )
