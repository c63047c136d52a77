"""Properties of configurations: equal are those of modules that issue the same, and of no others."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from collectives.virtual.layers.configuration import UnknownConfigurationError, configuration_of, value_key


def by_attribute(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
    """Return *x*, doubled if this function says so."""
    return x * 2 if by_attribute.doubles else x * scale


@pytest.mark.parametrize("values", [[], set(), deque(), {}, SimpleNamespace()])
def test_what_has_changed_is_not_as_it_was(values):
    before = value_key(values)

    assert value_key(values) == before
    if isinstance(values, (dict, SimpleNamespace)):
        (values if isinstance(values, dict) else vars(values))["new"] = 1
    else:
        values.add(1) if isinstance(values, set) else values.append(1)
    assert value_key(values) != before


def test_a_function_is_compared_by_its_attributes_too():
    by_attribute.doubles = False
    before = value_key(by_attribute)
    by_attribute.doubles = True

    assert value_key(by_attribute) != before


def test_what_may_change_unseen_cannot_be_compared():
    with pytest.raises(UnknownConfigurationError):
        value_key(bytearray(1))


def test_modules_that_share_something_are_equal_to_those_that_share_the_same():
    def two(shares: bool) -> nn.Module:
        first = nn.GELU()
        return nn.Sequential(first, first if shares else nn.GELU())

    assert configuration_of(two(True)) == configuration_of(two(True))
    assert configuration_of(two(False)) == configuration_of(two(False))
    assert configuration_of(two(True)) != configuration_of(two(False))
