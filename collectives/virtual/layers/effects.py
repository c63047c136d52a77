"""Effects of a module's Python: whether a call may change, or be told by, more than its tensors.

What is issued again without running the module's Python must not be missed: a line that it would print, a
number that it would count, another way that it would take where a variable of the script has changed.  So
the code of a module, and all that it may call, is gone through before it is first left out:

    changes    attributes, items and variables outside of a function, and methods that change what they are of
    calls      of what is not known to be without effects: functions of other packages, ``print``, ``open``
    asks       for its rank, or for what torch says of memory and random numbers
    reads      variables of its file: their values have to be the same whenever it is left out

Torch, and what stands in its place here, has no effects but on tensors.  Where one cannot tell, there is one.
"""

from __future__ import annotations

import argparse
import builtins
import dis
import functools
import operator
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from torch import Generator, Tensor, nn

from collectives.virtual.layers.configuration import HOOKS, attributes_of, is_trusted, is_trusted_file

_PURE = frozenset(
    (
        "abs", "all", "any", "bool", "bytes", "callable", "complex", "dict", "divmod", "enumerate", "filter",
        "float", "frozenset", "getattr", "hasattr", "hash", "int", "isinstance", "issubclass", "iter", "len",
        "list", "map", "max", "min", "next", "object", "pow", "range", "repr", "reversed", "round", "set",
        "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip", "__debug__",
    )
)  # fmt: skip
"""Names of Python's own functions that change nothing."""
_CHANGING = frozenset(
    (
        "acquire", "add_module", "append", "appendleft", "backward", "clear", "debug", "discard", "error",
        "extend", "info", "insert", "item", "manual_seed", "pop", "popitem", "popleft", "put", "record",
        "register_buffer", "register_forward_hook", "register_hook", "register_parameter", "release",
        "remove", "retain_grad", "seed", "send", "set", "set_", "setdefault", "synchronize", "tolist",
        "update", "warn", "warning", "write", "writelines",
    )
)  # fmt: skip
"""Names of methods that change what they are of, tell somebody, or ask for a value."""
_ASKING = frozenset(
    (
        "current_device", "empty_cache", "get_coordinate", "get_global_rank", "get_group_rank",
        "get_local_rank", "get_node_local_rank", "get_rank", "get_rng_state", "initial_seed",
        "manual_seed_all", "max_memory_allocated", "max_memory_reserved", "mem_get_info",
        "memory_allocated", "memory_reserved", "memory_stats", "memory_summary",
        "reset_peak_memory_stats", "set_rng_state",
    )
)  # fmt: skip
"""Names of torch's functions that tell ranks, or moments, apart, or change what these say."""
_STORES = frozenset(
    ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR")
)
_NAMES = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_OPERATORS = frozenset(f"__{side}{name.strip('_')}__" for name in operator.__all__ for side in ("", "r"))
_IMPLICIT = _OPERATORS - {"__delitem__", "__setitem__"} | {
    "__bool__", "__del__", "__enter__", "__exit__", "__float__", "__format__", "__get__", "__getattr__",
    "__getattribute__", "__int__", "__iter__", "__len__", "__missing__", "__next__", "__reversed__",
    "__str__", "__torch_function__", "backward", "forward", "setup_context",
}  # fmt: skip
"""Methods that are called by no name, other than those of instructions that set something."""
_MAKING = ("__new__", "__init__", "__post_init__")
"""Methods that are called where a class is."""
_SCALARS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice)


class Effects:
    """What the Python of a module, which *of* finds, may change or read beside its tensors.

    Attributes:
        reason: why a call cannot be left out, in words; empty if it can.
        reads: variables of the script's files, with the names by which functions read them.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.reads: dict[tuple[int, str], dict[str, Any]] = {}
        self._classes: set[type] = set()
        self._names = set(_IMPLICIT)
        self._seen: dict[int, Any] = {}

    @classmethod
    def of(cls, module: nn.Module) -> Effects:
        """Return those of *module*, whose own hooks run outside of it, and of all modules within."""
        found = cls()
        for inner in module.modules():
            found._know(type(inner))
            for _, value in attributes_of(inner):
                found._meet(value)
            if inner is not module:
                for name in HOOKS:
                    found._meet(vars(inner)[name])
        return found

    def _deny(self, reason: str) -> None:
        self.reason = self.reason or reason

    def _know(self, kind: type) -> None:
        """Go through the methods of a class that may be called."""
        for base in kind.__mro__:
            if base not in self._classes and not is_trusted(base.__module__):
                self._classes.add(base)
                for name in tuple(self._names):
                    self._look(base, name)

    def _make(self, kind: type) -> None:
        """Go through what makes an object of a class that is no module's."""
        for base in () if issubclass(kind, nn.Module) else kind.__mro__:
            if not is_trusted(base.__module__):
                for name in _MAKING:
                    self._look(base, name)

    def _use(self, name: str) -> None:
        """Go through what a name may be of the classes that are known."""
        if name in _CHANGING or name in _ASKING:
            self._deny(f"it calls {name}")
        if name not in self._names:
            self._names.add(name)
            for base in tuple(self._classes):
                self._look(base, name)

    def _look(self, base: type, name: str) -> None:
        value = vars(base).get(name)
        if isinstance(value, property):
            self._meet(value.fget)
        elif isinstance(value, (staticmethod, classmethod)):
            self._meet(value.__func__)
        else:
            self._meet(value)

    def _meet(self, value: Any) -> None:
        """Go through what code may call of *value*."""
        if isinstance(value, (*_SCALARS, Tensor)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, FunctionType):
            if not is_trusted_file(value.__code__.co_filename):
                self._read(value.__code__, value.__globals__)
                self._meet((value.__defaults__, value.__kwdefaults__))
                for cell in value.__closure__ or ():
                    self._meet(cell.cell_contents)
        elif isinstance(value, MethodType):
            self._meet(value.__func__)
            self._meet(value.__self__)
        elif isinstance(value, functools.partial):
            self._meet((value.func, value.args, value.keywords))
        elif isinstance(value, (list, tuple, set, frozenset)):
            for one in value:
                self._meet(one)
        elif isinstance(value, dict):
            self._meet(tuple(value.values()))
        elif isinstance(value, type):
            if not issubclass(value, BaseException):
                self._know(value)
                self._make(value)
        elif isinstance(value, (Iterator, Generator)):
            self._deny(f"it uses an object of {type(value).__name__}, which changes whenever it is used")
        elif isinstance(value, ModuleType):
            if not is_trusted(value.__name__):
                self._deny(f"it uses the module {value.__name__}")
        elif isinstance(value, BuiltinFunctionType):
            if not _is_pure(value):
                self._deny(f"it calls {value.__name__}")
        elif isinstance(value, (argparse.Namespace, SimpleNamespace)):
            self._meet(vars(value))
        elif is_trusted(type(value).__module__):
            self._meet(getattr(value, "__wrapped__", None))
        else:
            if isinstance(value, nn.Module) or not hasattr(value, "__dict__"):
                self._deny(f"it uses an object of {type(value).__name__}")
            else:
                self._know(type(value))
                self._meet(vars(value))

    def _read(self, code: CodeType, variables: dict[str, Any]) -> None:
        """Go through the instructions of a function, and of those within it."""
        for step in dis.get_instructions(code):
            name = step.argval
            if step.opname in _STORES or (step.opname == "STORE_DEREF" and name in code.co_freevars):
                self._deny(f"it sets {name if isinstance(name, str) else 'an item'}")
            elif step.opname in _ATTRIBUTES:
                self._use(name)
            elif step.opname == "IMPORT_NAME":
                self._deny(f"it imports {name}")
            elif step.opname in _NAMES and name in variables:
                self.reads[id(variables), name] = variables
                self._meet(variables[name])
            elif step.opname in _NAMES and name not in _PURE and not _is_error(name):
                self._deny(f"it calls {name}")
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self._read(inner, variables)


def _is_error(name: str) -> bool:
    value = getattr(builtins, name, None)
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_pure(function: Any) -> bool:
    """Return whether a function of C has no effects but on tensors."""
    module = getattr(function, "__module__", None)
    if module == "builtins":
        return function.__name__ in _PURE
    return module is None or is_trusted(module)
