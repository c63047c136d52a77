"""Properties of effects: a block whose Python may do more than compute is found, whichever way it does."""

import functools
import itertools
import logging
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from collectives.virtual.layers.configuration import value_key
from collectives.virtual.layers.effects import Effects

WORDS: list[str] = []
SCALE = 2.0
NUMBERS = SimpleNamespace(calls=0)
LOG = logging.getLogger(__name__)


def scaled(x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
    """Return *x*, scaled by a variable of this file."""
    return x * (by * SCALE * math.sqrt(4.0))


def told(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and leave word of it."""
    WORDS.append(str(x.shape))
    return x


def counted(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and count the call."""
    NUMBERS.calls += 1
    return x


def shown(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and print its shape."""
    print(x.shape)
    return x


def logged(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and log its shape."""
    LOG.info("%s", x.shape)
    return x


def set_item(x: torch.Tensor) -> torch.Tensor:
    """Return *x* with a row of zeros."""
    x[0] = 0
    return x


def within(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, told by a function within another."""
    return torch.stack([told(row) for row in x])


class Teller:
    """An object that a block has."""

    def look_at(self, x: torch.Tensor) -> torch.Tensor:
        """Return *x*, and leave word of it."""
        return told(x)


class Leaving:
    """A context that leaves word at its end."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        WORDS.append("left")


class Made:
    """An object that leaves word of what it is made of."""

    def __init__(self, x: torch.Tensor) -> None:
        told(x)


LEAVING = Leaving()
NUMBER = itertools.count()
GENERATOR = torch.Generator()


def left(x: torch.Tensor) -> torch.Tensor:
    """Return *x* from within a context of the script's."""
    with LEAVING:
        return x


def made(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and make an object of it."""
    Made(x)
    return x


def numbered(x: torch.Tensor) -> torch.Tensor:
    """Return *x* times the number of the call."""
    return x * next(NUMBER)


def drawn(x: torch.Tensor) -> torch.Tensor:
    """Return *x* with noise of a generator of the script's."""
    return x + torch.rand(3, generator=GENERATOR)


def ranked(x: torch.Tensor) -> torch.Tensor:
    """Return *x* times the rank."""
    return x * torch.distributed.get_rank()


@functools.cache
def named(words: str) -> str:
    """Return *words*, and print them when they are new."""
    print(words)
    return words


def cached(x: torch.Tensor) -> torch.Tensor:
    """Return *x*, and print once that it does."""
    named("cached")
    return x


class Block(nn.Module):
    """A product, and a function or an object of the script's."""

    def __init__(self, has: object = None) -> None:
        super().__init__()
        self.product, self.has = nn.Linear(3, 3), has

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x) if self.has is None else self.has(x)


class Looking(Block):
    """A block that has an object."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.has.look_at(x)


@pytest.mark.parametrize("has", [None, scaled, functools.partial(scaled, by=3.0)])
def test_a_block_that_computes_has_no_effects(has):
    assert Effects.of(Block(has)).reason == ""


MORE = (told, counted, shown, logged, set_item, within, left, made, numbered, drawn, ranked, cached)
"""Functions that do more than compute, or do not compute the same whenever and wherever they are called."""


@pytest.mark.parametrize("function", MORE)
@pytest.mark.parametrize("given", [lambda own: own, functools.partial, lambda own: {"it": [own]}])
def test_a_block_that_does_more_has_effects(function, given):
    assert Effects.of(Block(given(function))).reason


def test_an_object_that_does_more_has_effects():
    assert Effects.of(Looking(Teller())).reason


def test_a_hook_within_that_does_more_has_effects():
    hooked, outside = Block(), Block()
    hooked.product.register_forward_hook(lambda module, args, output: told(output))
    outside.register_forward_hook(lambda module, args, output: told(output))

    assert Effects.of(hooked).reason
    assert not Effects.of(outside).reason  # which runs around what is issued again


def test_variables_that_functions_read_are_named():
    read = {name for _, name in Effects.of(Block(scaled)).reads}

    assert {"SCALE", "math"} <= read


class Doubled(torch.autograd.Function):
    """Twice its input, whose way back leaves word."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * told(gradient)


class Silent(Doubled):
    """The same without a word."""

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


def test_the_way_back_through_a_function_is_looked_at():
    assert Effects.of(Block(lambda x: Doubled.apply(x))).reason


def test_functions_of_autograd_can_be_compared():
    assert value_key(Silent) == value_key(Silent)
