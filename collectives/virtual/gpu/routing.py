"""Routing of tokens to experts: which ones a router chooses in a run without data.

Of all floating-point data the scores of routers alone decide how large tensors are.  So where a distribution
is stated, ``topk`` of scores without values has indices with values, and what follows from them (counts,
splits, offsets) is computed like any integers that are known:

    balanced      every expert has equally many of a rank's tokens
    power-law:A   shares of experts are drawn from a power law of exponent A
    FILE          shares of a run with data, which `RoutingRecord` has counted

Shares are drawn anew for each router, which the module that runs tells, and for each iteration, the same on
all ranks: a recomputation finds what the forward pass found, and experts that are popular are so with all.
A rank's tokens are dealt out by these shares exactly, each to different experts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from os import PathLike
from random import Random
from statistics import fmean
from typing import Annotated, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from collectives.errors import NotSupportedError
from collectives.formats.json_document import read_json_document
from collectives.formats.whole_file import write_whole
from collectives.virtual.computation.cuda.experts import drawn_rows
from collectives.virtual.gpu.values import set_value, value_of
from collectives.virtual.memory.held_storage import Moment

_POWER_LAW = "power-law:"
_MAX_EXPONENT = 10.0
_SHOWN = 8
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")
"""Number of a layer in a module's name."""


class Router(Protocol):
    """Who is told of every ``topk`` on a device."""

    @property
    def decides_sizes(self) -> bool:
        """Whether sizes that ranks read may differ by iteration, as it has said which experts are chosen."""

    def choose(self, scores: Tensor, indices: Tensor, moment: Moment) -> str:
        """Note, or say, which *indices* of the last dimension of *scores* are chosen at *moment*.

        Returns what is assumed by that, in words; empty: nothing.
        """


class RoutingFile(BaseModel):
    """What a run with data has counted, as ``--record-routing`` writes it.

    Attributes:
        schema_version: of the format (``schema`` in the file).
        routers: by the name of the module, and where it chooses among several numbers of things, such as
            groups and experts, `its_other` from the second on: for each iteration, how many tokens went to
            each expert.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    routers: Annotated[
        dict[
            str,
            Annotated[
                list[Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]], Field(min_length=1)
            ],
        ],
        Field(min_length=1),
    ]


@dataclass(frozen=True)
class Routing:
    """A stated distribution; a `Router` of a run without data.

    Attributes:
        name: as it was asked for.
        exponent: of the power law; 0: every expert has the same share.
        recorded: what a run with data has counted, if it is that.
        is_stated: somebody has asked for it.
        layers: returns for how many equal layers those of the run stand; 1: for themselves.
        ranks: that share experts, where layers stand for others.
        imbalance: by iteration and router, tokens of the busiest expert over the mean.
    """

    name: str = "balanced"
    exponent: float = 0.0
    recorded: RoutingFile | None = None
    is_stated: bool = True
    layers: Callable[[], int] = field(default=lambda: 1, compare=False)
    ranks: int = 1
    imbalance: dict[tuple[int, str], float] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, text: str | PathLike[str]) -> Routing:
        """Return the distribution that *text* names.

        Raises:
            NotSupportedError: it names none, or a file that says none.
        """
        name = str(text)
        if name == "balanced":
            return cls()
        if name.startswith(_POWER_LAW):
            try:
                exponent = float(name.removeprefix(_POWER_LAW))
            except ValueError:
                exponent = 0.0
            if not 0 < exponent <= _MAX_EXPONENT:
                raise NotSupportedError(
                    f"routing {name!r}: expected an exponent above 0, up to {_MAX_EXPONENT:g}, such as "
                    "power-law:1.2"
                )
            return cls(name, exponent)
        try:
            recorded = read_json_document(name, RoutingFile, NotSupportedError, "recorded routing")
        except OSError as error:
            raise NotSupportedError(
                f"routing {name!r}: expected balanced, power-law:A such as power-law:1.2, or a file that "
                f"--record-routing has written: {error}"
            ) from None
        return cls(name, recorded=recorded)

    @property
    def decides_sizes(self) -> bool:
        """Whether experts had unlike shares, which may be others in every iteration."""
        return bool(self.imbalance) and (self.recorded is not None or self.exponent > 0)

    def choose(self, scores: Tensor, indices: Tensor, moment: Moment) -> str:
        """Let *indices* have values, unless they have some."""
        if value_of(indices) is not None or not indices.numel():
            return ""
        experts, chosen = scores.shape[-1], indices.shape[-1]
        rows = self._rows(indices.numel() // chosen, experts, chosen, moment)
        router = its_other(moment.module, experts)
        self.imbalance[moment.iteration, router] = max(rows) * experts / sum(rows)
        set_value(indices, dealt_out(rows, indices.numel() // chosen, chosen).view(indices.shape))
        assumed = f"without data topk chooses by --routing {self.name}, the same shares on all ranks"
        return assumed if self.is_stated else f"{assumed}: an assumption, as none is given"

    def notices(self) -> list[str]:
        """Return how uneven experts were in a run, or that no router was asked, in words."""
        if not self.imbalance:
            unused = (
                f"--routing {self.name} has changed nothing: no topk over a last dimension was called on CUDA"
            )
            return [unused] if self.is_stated else []
        busiest = dict[int, float]()
        for (iteration, _), ratio in sorted(self.imbalance.items()):
            busiest[iteration] = max(busiest.get(iteration, 0.0), ratio)
        steps = ", ".join(f"{ratio:.2f}" for ratio in list(busiest.values())[:_SHOWN])
        more = ", …" if len(busiest) > _SHOWN else ""
        return [f"tokens of the busiest expert over the mean, by step: {steps}{more}"]

    def _rows(self, tokens: int, experts: int, chosen: int, moment: Moment) -> Sequence[float]:
        """Return the share of each expert, in rows of any number.

        Raises:
            NotSupportedError: the file has no such router, or one with another number of experts.
        """
        if self.recorded is None:
            if not self.exponent:
                return [1.0] * experts
            number = _LAYER.search(moment.module)
            names = [moment.module]
            if number is not None and (layers := self.layers()) > 1:
                before, behind = moment.module[: number.start()], moment.module[number.end() :]
                names = [f"{before}{layer}{behind}" for layer in range(layers)]
            drawn = [
                drawn_rows(
                    Random(f"{name} {experts} {moment.iteration}"), tokens, experts, chosen, self.exponent
                )
                for name in names
            ]
            return typical(drawn, self.ranks) if len(drawn) > 1 else drawn[0]
        routers = self.recorded.routers
        steps = routers.get(its_other(moment.module, experts), routers.get(moment.module))
        if steps is None:
            known = ", ".join(self.recorded.routers)
            raise NotSupportedError(
                f"{self.name}: there is no router {moment.module!r} in it, but {known}; record the routing "
                "of this model: --record-routing FILE"
            )
        counts = steps[(moment.iteration - 1) % len(steps)]
        if len(counts) != experts:
            raise NotSupportedError(
                f"{self.name}: router {moment.module!r} has {len(counts)} experts there, and {experts} here; "
                "record the routing of this model: --record-routing FILE"
            )
        if not any(counts):
            raise NotSupportedError(
                f"{self.name}: router {moment.module!r} has no tokens in a row; expected some for an expert"
            )
        return counts


def typical(drawn: Sequence[Sequence[float]], ranks: int) -> Sequence[float]:
    """Return of *drawn* rows of experts those whose busiest of *ranks* has nearest to the mean of all."""
    busiest = [
        max(sum(rows[len(rows) * rank // ranks :][: len(rows) // ranks]) for rank in range(ranks))
        for rows in drawn
    ]
    mean = fmean(busiest)
    return drawn[min(range(len(drawn)), key=lambda own: abs(busiest[own] - mean))]


@dataclass
class RoutingRecord:
    """Counts the tokens of each expert in a run with data; a `Router`.

    Attributes:
        counts: by router and iteration, of all ranks together.
    """

    decides_sizes = False
    counts: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def choose(self, scores: Tensor, indices: Tensor, moment: Moment) -> str:
        """Count *indices*, if their values are known and they are not computed again."""
        value = value_of(indices)
        if value is None or not value.numel() or moment.phase == "recomputation":
            return ""
        experts = scores.shape[-1]
        is_first = self._sizes.setdefault(moment.module, experts) == experts
        steps = self.counts.setdefault(moment.module if is_first else its_other(moment.module, experts), {})
        before = steps.setdefault(moment.iteration, [0] * experts)
        own = torch.bincount(value.flatten(), minlength=experts).tolist()
        steps[moment.iteration] = [one + more for one, more in zip(before, own, strict=True)]
        return ""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file from which a run without data takes its routing.

        Raises:
            NotSupportedError: nothing has been chosen.
        """
        routers = {
            name: [steps[number] for number in sorted(steps)] for name, steps in sorted(self.counts.items())
        }
        if not routers:
            raise NotSupportedError(
                f"{path}: no topk was called on a CUDA device, so there is no routing to record; take a "
                "script that computes on cuda, with a device as --compute"
            )
        write_whole(path, RoutingFile(schema=1, routers=routers).model_dump_json(by_alias=True) + "\n")


def its_other(module: str, experts: int) -> str:
    """Return the name of *module* where it chooses among *experts*, and first chose among another number."""
    return f"{module} of {experts}"


def dealt_out(rows: Sequence[float], tokens: int, chosen: int) -> Tensor:
    """Return which experts *tokens* go to, int64 of shape (tokens, chosen): each to different ones.

    Args:
        rows: the share of each expert, in any unit.
        tokens: how many.
        chosen: experts of each.
    """
    total = tokens * chosen
    ends = [round(end * total / sum(rows)) for end in accumulate(rows, initial=0)]
    counts = [min(tokens, end - begin) for begin, end in pairwise(ends)]
    missing = total - sum(counts)
    for expert in sorted(range(len(rows)), key=lambda expert: -rows[expert]):
        more = min(missing, tokens - counts[expert])
        counts[expert], missing = counts[expert] + more, missing - more
    experts = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(counts))
    return experts.view(chosen, tokens).T.contiguous()
