"""Claims on scaling: by network, with a fixed and with a growing batch, and against DataParallel."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.lab.claims.claim import Case, Claim, Finding
from benchmarks.lab.claims.setups import (
    BERT,
    CAP_MB,
    DEVICES,
    ETHERNET_100,
    EXPECTED_IN_WORDS,
    GPT,
    INFINIBAND,
    MODELS_IN_WORDS,
    NVLINK,
    PLACES,
    PLACES_IN_WORDS,
    PROFILES,
    RESNET,
    Training,
    expected_of,
    on,
    step,
)
from testbed.output.table import percent

LOWEST = {"NVLink": 0.95, "InfiniBand": 0.85, "Ethernet": 0.50}
"""Lower ends of what is claimed for each network; *near-perfect* is read as 95 %."""

BASE_RANKS, STRONG_RANKS = 8, 64
STRONG_LOWEST = {RESNET: 0.50, BERT: 0.85, GPT: 0.85}
WEAK_RANKS = (8, 64, 256)
WEAK_LOWEST = 0.90
MOST_OF_DATA_PARALLEL, LEAST_GAIN = 0.70, 2.0

NETWORKS = Claim(
    "C5",
    "NVLink (600 GB/s) scales near-perfectly; InfiniBand (200 Gb/s) to 85 to 95 %; Ethernet (10 to 100 Gb/s) "
    "to 50 to 80 %.",
)
STRONG = Claim(
    "C6", "Strong scaling: 85 to 95 % for large models, 50 to 70 % for small ones (< 100 M parameters)."
)
WEAK = Claim("C7", "Weak scaling: 90 to 98 %.")
DATA_PARALLEL = Claim(
    "C11",
    "DataParallel (one process, threads, the model broadcast in each iteration, gradients gathered on one "
    "GPU) reaches 50 to 70 % efficiency; DDP is 2 to 3 times faster on 8 GPUs.",
)


def _efficiencies(training: Training) -> tuple[float, float]:
    """Return the efficiency that is expected of a real run, and the ideal one."""
    return expected_of(training).efficiency, step(training).efficiency


def _case(where: dict[str, str], efficiencies: tuple[float, float], lowest: float) -> Case:
    """Return the case in which at least *lowest* is claimed and *efficiencies* were found."""
    expected, ideal = efficiencies
    return Case(
        where,
        f"{percent(expected)} (ideally {percent(ideal)})",
        expected >= lowest,
        {"efficiency_expected": expected, "efficiency": ideal, "lowest_claimed": lowest},
    )


def networks() -> Finding:
    """Ask for the efficiency of every model on every network."""
    cases = []
    for place in PLACES:
        lowest = next(value for name, value in LOWEST.items() if name in place.name)
        for model in PROFILES:
            training = Training(model, place)
            cases.append(_case(training.where(), _efficiencies(training), lowest))
    return Finding(
        NETWORKS,
        f"weak scaling, wait_free, buckets of 25 MiB; {EXPECTED_IN_WORDS}; {PLACES_IN_WORDS}; "
        f"{MODELS_IN_WORDS}",
        "simulated",
        "the expected efficiency is at least 95 % on NVLink, 85 % on InfiniBand, 50 % on Ethernet",
        tuple(cases),
    )


def strong() -> Finding:
    """Divide one batch between 8 and between 64 ranks."""
    factor = STRONG_RANKS // BASE_RANKS
    cases = []
    for place in (INFINIBAND, ETHERNET_100):
        for model, lowest in STRONG_LOWEST.items():
            base = Training(model, on(place, BASE_RANKS))
            divided = Training(model, on(place, STRONG_RANKS), divided=factor)
            expected, ideal = (
                run(base).seconds / (factor * run(divided).seconds) for run in (expected_of, step)
            )
            cases.append(_case(Training(model, place).where(), (expected, ideal), lowest))
    return Finding(
        STRONG,
        f"the batch of {BASE_RANKS} ranks divided between {STRONG_RANKS}; efficiency: the step of "
        f"{BASE_RANKS} over {factor} steps of {STRONG_RANKS}; wait_free, buckets of 25 MiB; InfiniBand: "
        f"dgx-a100 by NCCL's model, Ethernet: rings on ethernet-100g; {EXPECTED_IN_WORDS}; {MODELS_IN_WORDS}",
        "simulated",
        "the expected efficiency is at least 85 % for BERT-large and GPT-2 XL, 50 % for ResNet-50 (26 M "
        "parameters)",
        tuple(cases),
        "Kernels of a smaller batch are taken to be as efficient as those of a large one, so real figures "
        "are lower.",
    )


def weak() -> Finding:
    """Let the batch grow with the ranks."""
    cases = []
    for place in (INFINIBAND, ETHERNET_100):
        for model in PROFILES:
            for ranks in WEAK_RANKS:
                training = Training(model, on(place, ranks))
                where = {**training.where(), "ranks": f"on {ranks} ranks"}
                cases.append(_case(where, _efficiencies(training), WEAK_LOWEST))
    return Finding(
        WEAK,
        f"{', '.join(map(str, WEAK_RANKS))} ranks, wait_free, buckets of 25 MiB; InfiniBand: nodes of "
        f"dgx-a100 by NCCL's model, Ethernet: rings on ethernet-100g; {EXPECTED_IN_WORDS}; {MODELS_IN_WORDS}",
        "simulated",
        "the expected efficiency is at least 90 %",
        tuple(cases),
    )


@dataclass(frozen=True)
class Bus:
    """What joins the 8 GPUs of one process: its name, and bytes/s of a GPU one way."""

    name: str
    bytes_per_second: int


BUSES = (
    Bus("NVLink", 235_200_000_000),
    Bus("PCIe 4", 25_000_000_000),
    Bus("PCIe 3", 12_500_000_000),
)
"""NVLink as in the preset dgx-a100; PCIe x16 at 80 %, an assumption, of 31.5 and 15.75 GB/s."""

BUS_LATENCY = "300ns"
GPUS = 8
KERNELS_PER_TENSOR = 3
"""The least that a parameter takes: one forward, and one for each of two gradients."""

INPUT_BYTES = {RESNET: 64 * 3 * 224 * 224 * 4, BERT: 128 * 128 * 3 * 8, GPT: 8 * 1024 * 2 * 8}
"""Of a rank's batch, which the first GPU hands out: images in float32; indices in 64 bits."""


def data_parallel() -> Finding:
    """Replay `torch.nn.DataParallel` beside DDP on 8 GPUs of one machine."""
    from ddp import simulate_step
    from sim import Topology

    cases = []
    for bus in BUSES:
        topology = Topology.switch(num_ranks=GPUS, bandwidth=bus.bytes_per_second, latency=BUS_LATENCY)
        for model in PROFILES:
            profile = Training(model, NVLINK).profile()
            ddp = simulate_step(profile, topology=topology, strategy="wait_free", bucket_cap_mb=CAP_MB)
            single = simulate_step(profile, topology=topology, strategy="data_parallel", algorithm="tree")
            scattered = (GPUS - 1) * INPUT_BYTES[model] / bus.bytes_per_second
            launched = GPUS * KERNELS_PER_TENSOR * len(profile.gradients) * _launch_seconds(model)
            seconds = max(single.seconds + scattered, launched)
            efficiency, gain = single.compute_seconds / seconds, seconds / ddp.seconds
            cases.append(
                Case(
                    {"network": f"on {bus.name}", "model": f"with {model}"},
                    f"{percent(efficiency)}, DDP {gain:.2f} times faster",
                    efficiency <= MOST_OF_DATA_PARALLEL and gain >= LEAST_GAIN,
                    {
                        "efficiency": efficiency,
                        "gain_of_ddp": gain,
                        "scatter_seconds": scattered,
                        "launch_seconds": launched,
                    },
                )
            )
    return Finding(
        DATA_PARALLEL,
        "8 GPUs on one switch, NVLink (235 GB/s one way) or PCIe x16 (25 and 12.5 GB/s); strategies "
        "data_parallel (trees) with the inputs handed out by the first GPU, no shorter than what one "
        "interpreter takes to launch three kernels for each parameter on every GPU in turn, and wait_free; "
        f"{MODELS_IN_WORDS}",
        "simulated",
        "DataParallel's efficiency is at most 70 %, and DDP is at least twice as fast",
        tuple(cases),
        "Not counted: what Python takes besides launching, and outputs gathered on the first GPU (losses are "
        "taken to be computed on each); both make DataParallel slower still.",
    )


def _launch_seconds(model: str) -> float:
    from sim.files.device_file import load_device
    from sim.units import to_seconds

    return to_seconds(load_device(DEVICES[model]).launch_ps)
