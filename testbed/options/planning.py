"""Options of plans: the common question without a file, and where its points are worked out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from testbed.errors import UsageError
from testbed.options.arguments import MAX_RANKS, WORLD_SIZES, Scheduler, parse_ranks, parse_sizes, several
from testbed.options.assumptions import (
    AssumptionsFile,
    Ideal,
    Inefficiencies,
    OnDevice,
    TransportModelName,
    inefficiencies_of,
)
from testbed.options.groups import given, refuse


@dataclass(frozen=True)
class QuestionOptions:
    """Options for a question without a file; each that may be repeated, or has a list, is an axis.

    Attributes:
        profile: A model: a profile that ships or a file.
        collective: A collective by itself.
        nbytes: Of collectives: 64M, a list 4K,1M, or a range 4K-1G.
        network: A preset (testbed network) or a file.
        set_: Another value of a field of the networks, such as nic_bandwidth=100Gbps,400Gbps, or nodes=8,32.
        strong: Strong scaling, too: a fixed global batch, that of the fewest ranks.
        strategy: Overlap strategy, or FILE.py:CLASS. By default wait_free.
        bucket_cap_mb: Size of a bucket, in MiB.
        algorithm: Of collectives. By default what NCCL would run, where a network says what hardware it is,
            else the cheapest on its links.
        timing: links: messages share links; library (vendor): as measured of NCCL, or as it expects; auto:
            library of each network that names its hardware and is left as it is.
        transport_model: How steps of programs are completed; by default as over what would really run, nccl
            where a network names its hardware, else gloo.
        tokens_per_rank: Tokens of a step on one rank, of every model.
        train_tokens: Tokens of the whole training, for its time and cost.
        price_per_gpu_hour: What a rank costs an hour, on one network or on all.
    """

    profile: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE,…")] = None
    collective: Annotated[list[str] | None, typer.Option(metavar="NAME,…")] = None
    nbytes: Annotated[str | None, typer.Option(metavar="SIZES")] = None
    network: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE,…")] = None
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE,…")] = None
    ranks: Annotated[str | None, typer.Option(metavar="LIST", help=WORLD_SIZES)] = None
    strong: Annotated[bool, typer.Option("--strong")] = False
    strategy: Annotated[list[str] | None, typer.Option(metavar="NAME,…")] = None
    bucket_cap_mb: Annotated[list[float] | None, typer.Option(metavar="MB")] = None
    algorithm: Annotated[list[str] | None, typer.Option(metavar="NAME,…")] = None
    timing: Annotated[
        Literal["auto", "links", "library", "vendor"] | None, typer.Option("--model", "--timing")
    ] = None
    transport_model: TransportModelName | None = None
    inefficiencies: Inefficiencies = None
    device: OnDevice = None
    ideal: Ideal = False
    assumptions: AssumptionsFile = None
    tokens_per_rank: Annotated[float | None, typer.Option(metavar="N")] = None
    train_tokens: Annotated[float | None, typer.Option(metavar="N")] = None
    price_per_gpu_hour: Annotated[list[str] | None, typer.Option(metavar="[NETWORK=]PRICE")] = None

    def __post_init__(self) -> None:
        for name in ("profile", "collective", "network", "strategy", "algorithm"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, several(given, f"--{name}"))

    def check_against(self, file: Path) -> None:
        """Check that none is given beside a question in *file*.

        Raises:
            UsageError: one is.
        """
        refuse(given(self), f"{file} is the whole question: write into it what {{}} says")

    def place(self, question: str, *beside: str) -> tuple[str, int]:
        """Return the network and the number of ranks, of which *question* has one each.

        Args:
            question: the option that asks it.
            beside: options that it has besides.

        Raises:
            UsageError: one of them is missing, or another option is given.
        """
        known = ("--network", "--ranks", *beside)
        others = {option: own for option, own in given(self).items() if option not in known}
        refuse(others, f"{{}} and {question} ask different things: leave one out")
        if self.network is None or len(self.network) != 1:
            raise UsageError(f"{question}: expected one network, as --network NAME|FILE")
        counts = [] if self.ranks is None else parse_ranks(self.ranks)
        if len(counts) != 1:
            raise UsageError(f"{question}: expected one number of ranks, as --ranks 1024")
        return self.network[0], counts[0]

    def content(self) -> dict[str, Any]:
        """Return the question as a file would say it.

        Raises:
            UsageError: an option cannot be read.
        """
        tokens = {} if self.tokens_per_rank is None else {"tokens_per_rank": self.tokens_per_rank}
        sizes = {"sizes": parse_sizes(self.nbytes or "64M", 2, "--nbytes")} if self.collective else {}
        by = {} if self.algorithm is None else {"algorithms": self.algorithm}
        content: dict[str, Any] = {
            "profile": [{"name": name, **tokens} for name in self.profile or ()],
            "collective": [{"name": name, **sizes, **by} for name in self.collective or ()],
            "network": self._networks(),
            "set": _settings(self.set_ or ()),
            "scaling": ["weak", "strong"] if self.strong else ["weak"],
        }
        plain = {
            "ranks": None if self.ranks is None else parse_ranks(self.ranks),
            "strategies": self.strategy,
            "bucket_caps_mb": self.bucket_cap_mb,
            "algorithms": self.algorithm,
            "timing": self.timing,
            "transport": self.transport_model,
            "inefficiencies": inefficiencies_of(self.inefficiencies),
            "device": self.device,
            "train_tokens": self.train_tokens,
        }
        return (
            content
            | {"ideal": self.ideal}
            | {name: value for name, value in plain.items() if value is not None}
        )

    def _networks(self) -> list[dict[str, Any]]:
        if not self.network:
            raise UsageError("no network is named: give one with --network NAME|FILE, or a QUESTION.toml")
        prices: dict[str, float] = {}
        for text in self.price_per_gpu_hour or ():
            where, _, number = text.rpartition("=")
            try:
                prices[where] = float(number)
            except ValueError:
                said = f"--price-per-gpu-hour {text}: expected a number, or NETWORK=NUMBER"
                raise UsageError(said) from None
        unknown = [name for name in prices if name and name not in self.network]
        if unknown:
            raise UsageError(
                f"--price-per-gpu-hour {unknown[0]}=…: no such --network; expected one of "
                f"{', '.join(self.network)}"
            )
        priced = {name: prices.get(name, prices.get("")) for name in self.network}
        return [
            {"name": name} | ({} if priced[name] is None else {"price_per_gpu_hour": priced[name]})
            for name in self.network
        ]


@dataclass(frozen=True)
class SweepOptions:
    """Options for where the points of a sweep are worked out, and what is known already.

    Attributes:
        workers: Processes here; by default one for each core.
        cache: Where rows are kept that are known; by default in the user's cache folder.
    """

    PANEL: ClassVar = "Workers"

    workers: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS, metavar="N")] = None
    scheduler: Scheduler = None
    cache: Annotated[str | None, typer.Option(metavar="DIR|none")] = None


def _settings(texts: list[str] | tuple[()]) -> dict[str, list[str]]:
    """Return fields with their values, as ``FIELD=VALUE,VALUE`` has them."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator or not name.strip() or not all(value.strip() for value in values.split(",")):
            raise UsageError(
                f"--set {text}: expected FIELD=VALUE, or several values, as in nic_bandwidth=100Gbps,400Gbps"
            )
        if name.strip() in found:
            raise UsageError(f"--set {name.strip()} is given twice; give its values in one, with commas")
        found[name.strip()] = [value.strip() for value in values.split(",")]
    return found
