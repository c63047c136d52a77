"""Names of torch that this project's sources use, and which of them the installed torch lacks.

A name is read in the sources: what is imported, what follows a module or a class of torch by dots, and what
stands beside one as the text of an attribute, as in ``(owner, "name", value)`` of what a run replaces.
Names after anything else, such as an instance, are not seen, nor those that a loop puts together; what is
asked for with a default may be missing.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from testbed.output.table import progress

PACKAGES = ("collectives", "ddp", "sim", "testbed")
OF_OTHER_BUILDS = {"torch.distributed.ProcessGroupNCCL"}
"""What builds without NCCL lack, to which nothing comes there."""

_ATTEMPT = "from collectives.virtual.gpu.native.self_test import attempt; attempt()"
_TIMEOUT = 120
_GUARDS = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}


@dataclass(frozen=True)
class Use:
    """A name of torch, and where it is used.

    Attributes:
        name: from ``torch`` on.
        path: the file, from the folder of the packages.
        line: the first in that file.
        purpose: what the file is for, as its first line says.
        is_there: whether this torch has it.
    """

    name: str
    path: str
    line: int
    purpose: str
    is_there: bool

    @property
    def is_private(self) -> bool:
        """Whether torch promises nothing of it."""
        return any(part.startswith("_") and not part.startswith("__") for part in self.name.split("."))


def uses() -> list[Use]:
    """Return each name of torch once for each file that uses it, in the order of files and lines."""
    root = Path(__file__).parents[2]
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    found: list[Use] = []
    with progress(len(paths)) as advance:
        for number, path in enumerate(paths):
            advance("looking up names of torch", number)
            source = path.read_text(encoding="utf-8")
            found += uses_of(source, str(path.relative_to(root))) if "torch" in source else []
    return found


def why_no_virtual_device() -> str | None:
    """Return why tensors cannot be on virtual CUDA devices with this torch; None: they can.

    Asked of another process, which this torch may end.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ATTEMPT], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_TIMEOUT} s"
    return None if done.returncode == 0 else "".join(done.stderr.strip().splitlines()[-1:])


def uses_of(source: str, path: str) -> list[Use]:
    """Return the names of torch that *source* uses, which stands in *path*."""
    tree = ast.parse(source)
    purpose = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
    first: dict[str, Use] = {}
    for name, line in _names(tree):
        known = first.get(name)
        if known is None or line < known.line:
            first[name] = Use(name, path, line, purpose, is_there(name))
    return sorted(first.values(), key=lambda use: (use.line, use.name))


@cache
def is_there(name: str) -> bool:
    """Return whether the installed torch has *name*: a module, or what is reached from one by classes."""
    if any(name == other or name.startswith(f"{other}.") for other in OF_OTHER_BUILDS):
        return True
    parts = name.split(".")
    owner: object = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 1):
        if not isinstance(owner, types.ModuleType | type):
            return True
        module = _module(".".join(parts[: number + 1])) if isinstance(owner, types.ModuleType) else None
        if module is None and not hasattr(owner, part):
            return isinstance(owner, type) and _is_of_instances(owner, part)
        owner = getattr(owner, part) if module is None else module
    return True


def _is_of_instances(owner: type, name: str) -> bool:
    """Return whether the source of a class gives its instances the attribute *name*."""
    with suppress(OSError, TypeError):
        return f"self.{name}" in inspect.getsource(owner)
    return False


@cache
def _module(name: str) -> types.ModuleType | None:
    """Return the module *name*, which something else of that name in its package may hide; None: none."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")  # that a module of torch may go is what `doctor` is for
        return importlib.import_module(name)
    return None


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of torch that *tree* uses, and their lines, but for those that it expects to lack."""
    guarded = {id(node) for whole in ast.walk(tree) if _is_guarded(whole) for node in ast.walk(whole)}
    nodes = [node for node in ast.walk(tree) if id(node) not in guarded]
    imported = [own for node in nodes for own in _imports(node)]
    yield from ((name, line) for _, name, line in imported)

    bound = {own: "torch" if own == "torch" else name for own, name, _ in imported}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            name = _dotted(node.value, bound)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound |= {own.id: name for own in targets if name is not None and isinstance(own, ast.Name)}

    for node in nodes:
        if isinstance(node, ast.Attribute):
            if name := _dotted(node, bound):
                yield name, node.lineno
        elif isinstance(node, ast.Tuple | ast.Call):
            beside = node.elts if isinstance(node, ast.Tuple) else node.args
            for first, second in pairwise(beside):
                owner = _dotted(first, bound)
                text = second.value if isinstance(second, ast.Constant) else None
                if owner and isinstance(text, str) and _is_attribute(text):
                    yield f"{owner}.{text}", node.lineno


def _imports(node: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield what *node* imports of torch: how the source calls it from there on, its name, and the line."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if _is_of_torch(alias.name):
                yield alias.asname or "torch", alias.name, node.lineno
    elif isinstance(node, ast.ImportFrom) and _is_of_torch(node.module or ""):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}", node.lineno


def _is_guarded(node: ast.AST) -> bool:
    """Return whether *node* says what is to be done where a name is not there."""
    if isinstance(node, ast.Try):
        caught = {own.id for one in node.handlers for own in ast.walk(one) if isinstance(own, ast.Name)}
        return not caught.isdisjoint(_GUARDS)
    if isinstance(node, ast.With):
        return any("suppress" in ast.unparse(item.context_expr) for item in node.items)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
    return False


def _is_of_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _is_attribute(text: str) -> bool:
    """Return whether *text* may name an attribute that is there before it is replaced."""
    return text.isidentifier() and not text.startswith("__") and text != "_"


def _dotted(node: ast.expr, bound: Mapping[str, str]) -> str | None:
    """Return the name from ``torch`` on of what *node* says, if it begins with one that is *bound*."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return ".".join([bound[node.id], *reversed(parts)])
