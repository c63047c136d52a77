"""Set-ups of simulated claims: models, clusters, and training steps on them.

Every step is that of `ddp.step.simulated_step.simulate_step`: a bundled profile, replayed through the
reducer that trains.  On NVLink and InfiniBand each bucket takes what NCCL's own model says, which counts what
a call costs besides its bytes; NCCL's model knows no sockets, so on Ethernet rings run on the links of the
preset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddp.profiles import Profile
    from ddp.step.step_run import StepRun
    from sim.topology import Topology

RESNET, BERT, GPT = "ResNet-50", "BERT-large", "GPT-2 XL"
PROFILES = {RESNET: "resnet50", BERT: "bert-large", GPT: "gpt2-xl"}
"""Small (26 million parameters), medium (335 million) and large (1.6 billion)."""

DEVICES = {RESNET: "a100", BERT: "a100", GPT: "h100"}
"""On which the profiles were taken."""

CAP_MB = 25.0

INEFFICIENCIES = ("contention", "late", "copies", "optimizer")
LAUNCHES = "launches"
"""Terms of `ddp.step.inefficiencies`; NCCL's own model has launches in it, rings on links have not."""

EXPECTED_IN_WORDS = (
    "expected: with contention, late ranks, launches, copies into buckets and the optimizer, each by its "
    "published constant (sim/files/inefficiencies.toml); ideally: without them"
)


@dataclass(frozen=True)
class Place:
    """A cluster.

    Attributes:
        name: in words.
        network: the preset.
        ranks: how many.
        nccl: whether a bucket takes what NCCL's own model says, or what a ring takes on the links.
    """

    name: str
    network: str
    ranks: int
    nccl: bool = False

    def topology(self) -> Topology:
        """Return its network."""
        from sim import load_network

        return load_network(self.network).topology(self.ranks)


NVLINK = Place("NVLink", "dgx-a100", 8, nccl=True)
INFINIBAND = Place("InfiniBand", "dgx-a100", 64, nccl=True)
ETHERNET_100 = Place("100 Gb/s Ethernet", "ethernet-100g", 64)
ETHERNET_25 = Place("25 Gb/s Ethernet", "ethernet-25g", 64)
ETHERNET_10 = Place("10 Gb/s Ethernet", "ethernet-10g", 64)
PLACES = (NVLINK, INFINIBAND, ETHERNET_100, ETHERNET_25, ETHERNET_10)

PLACES_IN_WORDS = (
    "NVLink: 8 A100 of a DGX (dgx-a100); InfiniBand: 64 in 8 of them, 200 Gb/s each; both by NCCL's model. "
    "Ethernet: 64 ranks with a card each (ethernet-100g, -25g, -10g), rings on its links"
)
MODELS_IN_WORDS = (
    "bundled profiles: ResNet-50 and BERT-large on A100 in TF32, GPT-2 XL on H100 in bfloat16, with float32 "
    "gradients"
)


@dataclass(frozen=True)
class Training:
    """A data-parallel training step.

    Attributes:
        model: one of `PROFILES`.
        place: where.
        strategy: of overlap.
        cap_mb: of the buckets, MiB.
        half: whether gradients are in 16 bits.
        expected: whether the inefficiencies of a real run are counted.
        divided: into how many the profile's batch is divided; computation takes that much less.
    """

    model: str
    place: Place
    strategy: str = "wait_free"
    cap_mb: float = CAP_MB
    half: bool = False
    expected: bool = False
    divided: int = 1

    def profile(self) -> Profile:
        """Return what a rank computes."""
        from ddp.profiles import load_profile

        profile = load_profile(PROFILES[self.model])
        if self.half:
            profile = in_half_precision(profile)
        return profile.slowed(Fraction(1, self.divided))

    def where(self) -> dict[str, str]:
        """Return network and model as properties of a case."""
        return {"network": f"on {self.place.name}", "model": f"with {self.model}"}


def expected_of(training: Training) -> StepRun:
    """Return the step that is expected of a real run of *training*."""
    return step(replace(training, expected=True))


@cache
def step(training: Training) -> StepRun:
    """Return the simulated step of *training*."""
    from ddp import simulate_step

    nccl = training.place.nccl
    inefficiencies = (*INEFFICIENCIES, *(() if nccl else (LAUNCHES,)))
    return simulate_step(
        training.profile(),
        topology=training.place.topology(),
        strategy=training.strategy,
        bucket_cap_mb=training.cap_mb,
        algorithm="auto" if nccl else "ring",
        model="nccl" if nccl else "links",
        inefficiencies=inefficiencies if training.expected else (),
        device=DEVICES[training.model],
    )


def in_half_precision(profile: Profile) -> Profile:
    """Return *profile* with gradients in 16 bits, and the same computation."""
    gradients = tuple(
        gradient.model_copy(update={"dtype": "float16", "nbytes": 2 * gradient.numel})
        for gradient in profile.gradients
    )
    return profile.model_copy(update={"gradients": gradients})


def on(place: Place, ranks: int) -> Place:
    """Return *place* with another number of ranks."""
    return replace(place, ranks=ranks)
