"""Virtual method tables of C++ objects, with entries replaced by functions in Python.

The order of the entries is read from the headers that torch ships, by the Itanium C++ ABI, which Linux and
macOS follow: virtual functions in the order of their declarations, those of the base first, two entries for a
destructor, and two words before the first entry.

Source: Itanium C++ ABI, section 2.5.2 "Virtual Table Components and Order".
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from collectives.errors import NotSupportedError

_WORD = ctypes.sizeof(ctypes.c_void_p)
_WORDS_BEFORE = 2
"""The offset to the top, and the type."""

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OTHER_BUILDS = re.compile(r"#ifdef USE_ROCM.*?#endif", re.DOTALL)
_VIRTUAL = re.compile(r"\bvirtual\s[^;{}]*?(~?\w+)\s*\(")


def order_of(*headers: str) -> Sequence[str]:
    """Return the names of the entries of the class that *headers* declare, its bases first.

    Raises:
        NotSupportedError: torch has come without its headers.
    """
    order: list[str] = []
    for header in headers:
        path = Path(torch.__file__).parent / "include" / header
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            raise NotSupportedError(
                f"virtual CUDA devices need torch's headers, and {path} cannot be read; "
                "install torch from a wheel, or run without a GPU as the model of computation"
            ) from None
        text = _OTHER_BUILDS.sub("", _COMMENTS.sub("", text))
        for name in _VIRTUAL.findall(text):
            if name.startswith("~"):
                order += ["destroy", "delete"]
            elif name not in order:
                order.append(name)
    return order


class Table:
    """A copy of the table of an object, some of whose entries are functions in Python.

    Args:
        instance: the address of an object whose table it is.
        order: the names of the entries.
        entries: what stands in the place of some.

    Attributes:
        address: what a pointer to the table holds.
    """

    def __init__(self, instance: int, order: Sequence[str], entries: Mapping[str, Any]) -> None:
        original = pointer_at(instance) - _WORDS_BEFORE * _WORD
        length = _WORDS_BEFORE + len(order)
        self._words = (ctypes.c_void_p * length).from_buffer_copy(
            (ctypes.c_void_p * length).from_address(original)
        )
        self._entries = dict(entries)  # they must live as long as the table
        for name, function in entries.items():
            if name not in order:
                raise NotSupportedError(
                    f"virtual CUDA devices need {name} in the interface of devices, which torch "
                    f"{torch.__version__} has not; run without a GPU as the model of computation"
                )
            self._words[_WORDS_BEFORE + order.index(name)] = ctypes.cast(function, ctypes.c_void_p).value
        self.address = ctypes.addressof(self._words) + _WORDS_BEFORE * _WORD


def pointer_at(address: int) -> int:
    """Return the pointer that is stored at *address*; 0 for null."""
    return ctypes.c_void_p.from_address(address).value or 0


def library(name: str) -> ctypes.CDLL:
    """Return one of torch's own libraries."""
    folder = Path(torch.__file__).parent / "lib"
    found = next((folder / f"lib{name}{suffix}" for suffix in (".so", ".dylib")
                  if (folder / f"lib{name}{suffix}").exists()), None)  # fmt: skip
    if found is None:
        raise NotSupportedError(f"virtual CUDA devices need lib{name} of torch, which is not in {folder}")
    return ctypes.CDLL(str(found))
