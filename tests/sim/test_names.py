"""Names of the package, which are imported when they are used."""

import ast
import inspect
from importlib import import_module

import pytest

import sim


def test_every_name_that_type_checkers_know_is_found_where_it_is_defined():
    blocks = [block for block in ast.parse(inspect.getsource(sim)).body if isinstance(block, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    known = {alias.name: line.module for line in imports for alias in line.names}

    assert known == sim._HOME_OF
    assert sorted(known) == sim.__all__ == dir(sim)
    assert all(getattr(sim, name) is getattr(import_module(module), name) for name, module in known.items())


def test_a_name_that_is_none_is_refused():
    with pytest.raises(AttributeError, match="module 'sim' has no attribute 'nothing'"):
        sim.nothing  # noqa: B018
