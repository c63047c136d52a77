"""Row of a plan: what was found of one point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from testbed.calibration.confidence import Interval
from testbed.output.folder import Method
from testbed.planning.points import Point


@dataclass(frozen=True)
class Row:
    """What a point comes to.

    Attributes:
        point: the inputs.
        seconds: of a step, a steady iteration or a collective.
        compute_seconds: what the step takes on one rank alone, by the same terms; with strong scaling the
            rank's share of what that takes for the work of all; None for collectives.
        efficiency: of a step: compute over step, which is 1 in perfect scaling; of a collective: the floor
            over its time; None where it is not known.
        algorithm: of the all-reduce of the largest bucket, or of the collective: what has run.
        resolved: name under which the same runs again; ``default`` where a closed form has chosen.
        bottleneck: the fullest link while that runs; None where nothing is sent.
        bottleneck_utilisation: how full it is, from 0 to 1.
        method: how the figures were got.
        timed_by: what communication is timed by: ``links``, ``measured`` or ``nccl``.
        inefficiencies: terms that were counted besides.
        memory_bytes: at the peak, of the rank with most; None where it is not known.
        topology: digest of the network.
        problem: why there is no figure; empty where there are.
        profile: of a step, as this and all that follow: how the profile calls itself.
        exposed_seconds: in which communication keeps the compute waiting, and inefficiencies.
        num_buckets: in which the gradients travel.
        engine: of the simulation.
        transport_model: how steps of programs were completed.
        assumed: all that was counted besides the network, in words.
        each_size_once: whether each size of bucket was simulated once, as a step has too many messages.
        buckets: collectives of the step, each with the bytes of its buffer, once.
        low: seconds that one measurement in twenty stays below; None where nobody has measured such.
        high: seconds that one in twenty exceeds.
        interval_from: which measured rows say so.
    """

    point: Point
    seconds: float | None = None
    compute_seconds: float | None = None
    efficiency: float | None = None
    algorithm: str = ""
    resolved: str = "default"
    bottleneck: str | None = None
    bottleneck_utilisation: float | None = None
    method: Method = "simulated"
    timed_by: str = "links"
    inefficiencies: tuple[str, ...] = ()
    memory_bytes: int | None = None
    topology: str = ""
    problem: str = ""
    profile: str = ""
    exposed_seconds: float = 0.0
    num_buckets: int = 0
    engine: str = ""
    transport_model: str = ""
    assumed: str = ""
    each_size_once: bool = False
    buckets: tuple[tuple[str, int], ...] = ()
    low: float | None = None
    high: float | None = None
    interval_from: str = ""

    @property
    def settled(self) -> Point:
        """The point with what was counted named, so that an alteration changes nothing else.

        Of a step `evaluate` keeps the algorithms, one for each size, that were chosen without it.
        """
        point = self.point
        algorithm = point.algorithm if point.kind == "step" else self.resolved
        on_links = self.timed_by == "links" and point.kind != "script"
        timing = "links" if on_links else point.timing
        return replace(
            point, algorithm=algorithm, timing=timing, inefficiencies=self.inefficiencies, finds_link=False
        )

    @property
    def interval(self) -> Interval | None:
        """Where nine of ten measurements are expected; None where nobody has measured such."""
        if self.low is None or self.high is None:
            return None
        return Interval(self.low, self.high, self.interval_from)

    @property
    def tokens_per_second(self) -> float | None:
        """Of all ranks; None where nobody says how many tokens a step has."""
        tokens = self.point.tokens_per_step
        return tokens / self.seconds if tokens is not None and self.seconds else None

    @property
    def cost(self) -> float | None:
        """Of one step, in the currency of the price; None without a price."""
        price = self.point.price_per_gpu_hour
        if price is None or self.seconds is None:
            return None
        return price * self.point.ranks * self.seconds / 3600

    def as_json(self) -> dict[str, Any]:
        """Return inputs and figures as JSON types, in one object."""
        inputs = self.point.as_json()
        inputs["algorithm_asked"] = inputs.pop("algorithm")
        own = self.kept()
        for name in ("buckets",) if self.point.kind == "step" else _OF_STEPS:
            del own[name]
        return {**inputs, **own, "tokens_per_second": self.tokens_per_second, "cost": self.cost}

    def kept(self) -> dict[str, Any]:
        """Return the figures alone, as JSON types, for a cache."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "point"}
        return {**own, "inefficiencies": list(self.inefficiencies), "buckets": list(map(list, self.buckets))}

    @classmethod
    def again(cls, point: Point, kept: Mapping[str, Any]) -> Row:
        """Return the row of *point* with the figures that `kept` has returned.

        Raises:
            TypeError: there is one too many or too few.
        """
        own = dict(kept)
        own["inefficiencies"] = tuple(own["inefficiencies"])
        own["buckets"] = tuple((collective, nbytes) for collective, nbytes in own["buckets"])
        return cls(point, **own)


_OF_STEPS = (
    *("profile", "exposed_seconds", "num_buckets", "engine", "transport_model", "assumed", "each_size_once"),
    "buckets",
)
"""Figures that rows of steps alone have."""
