"""The same model in torch: equal where both describe the same, and where they differ, by known terms alone.

`torch._inductor.comm_analysis` holds tree and ring of NCCL's model, with some numbers of its own.  It is
asked here for every algorithm and protocol, as if there were eight GPUs of each generation in a node.
What it has otherwise, and what our model is given for the comparison:

* LL128 leaves 120/128 of a ring's bandwidth where NCCL has 0.92, and is off between nodes;
* a tree in LL or LL128 has neither the share of 0.92 nor the ceiling of a tree;
* the last factor of the trees' correction applies (NCCL's table has 24, of which it uses 23), and a
  size below 64 bytes counts as 64;
* between nodes, the bandwidth is that of the cards times fitted factors of the number of nodes and of
  the size, on two nodes as well;
* between nodes, a hop inside a node takes at least what posting to the card takes, in trees as in rings,
  where NCCL has it in rings alone: 1 us, which raises a tree with LL on NVLink;
* a ring with Simple has no plateau.
"""

import importlib
import math
from dataclasses import replace
from fractions import Fraction
from types import ModuleType

import pytest

from collectives.timing.formulas.nccl.constants import NCCL_2_30, Constants
from collectives.timing.formulas.nccl.model import Prediction, table
from sim.hardware import Channels, Hardware

SIZES = [1, 63, 64, 1000, 4096, 2**15 + 1, 2**18, 2**20, 2**23, 10**8, 2**28, 2**29, 2**30, 2**33]
GENERATIONS = ["volta", "ampere", "hopper", "blackwell"]
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter"]

OF_TORCH = ["_nccl_algo_time", "_has_nvlink", "_GPU_NCHANNELS", "NCCL_PROTO"]

LIKE_TORCH = replace(
    NCCL_2_30,
    ring_share={**NCCL_2_30.ring_share, "LL128": 120 / 128},
    tree_share={"LL": None, "LL128": None, "Simple": 0.92},
    num_tree_corrections=24,
    ring_plateau=(1.0, 1.0),
)
NVLINK = NCCL_2_30.hop_latency["nvlink"]
LIKE_TORCH_BETWEEN_NODES = replace(
    LIKE_TORCH,
    hop_latency={**NCCL_2_30.hop_latency, "nvlink": {**NVLINK, "Tree": {**NVLINK["Tree"], "LL": 1.0}}},
)


@pytest.fixture(scope="module")
def torch_model() -> ModuleType:
    module = importlib.import_module("torch._inductor.comm_analysis")
    if missing := [name for name in OF_TORCH if not hasattr(module, name)]:
        pytest.skip(f"the model of this torch is built otherwise: it has no {', '.join(missing)}")
    return module


@pytest.fixture(params=GENERATIONS)
def generation(
    request: pytest.FixtureRequest, torch_model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Make torch believe that it is on GPUs of a generation, joined by NVLink."""
    gpu = torch_model.NVIDIA_GPU_TYPE[request.param.upper()]
    monkeypatch.setattr(torch_model, "get_gpu_type", lambda: gpu)
    monkeypatch.setattr(torch_model, "_has_nvlink", lambda: True)
    monkeypatch.setattr(torch_model.torch.cuda, "is_available", lambda: False)  # then it takes eight a node
    return request.param


def in_torch(
    module: ModuleType, collective: str, nbytes: int, num_nodes: int
) -> dict[tuple[str, str], float]:
    """Return torch's microseconds by algorithm and protocol, where it has any."""
    kind = module.NCCL_COLL[collective.upper()]
    times = {
        (algorithm, protocol): module._nccl_algo_time(
            nbytes,
            8 * num_nodes,
            kind,
            module.NCCL_ALGO[algorithm.upper()],
            module.NCCL_PROTO[protocol.upper()],
        )
        for algorithm in (("Tree", "Ring") if collective == "all_reduce" else ("Ring",))
        for protocol in ("LL", "LL128", "Simple")
    }
    return {pair: time for pair, time in times.items() if time >= 0}


def torch_like(module: ModuleType, generation: str, num_nodes: int, nbytes: int) -> Hardware:
    """Return hardware with the bandwidths that torch takes."""
    gpu = module.NVIDIA_GPU_TYPE[generation.upper()]
    count = module._GPU_NCHANNELS[gpu]
    rate = module._GPU_NVLINK_BW[gpu]
    if num_nodes > 1:
        rate = module._GPU_INTER_NODE_BW[gpu] * (0.77 + 0.23 * min(1.0, (num_nodes - 1) / 7))
        if num_nodes > 2:
            rate *= (max(nbytes, 50_000_000) / 50_000_000) ** 0.17
    channels = Channels.of(count, float(round(Fraction(rate) * 10**9 / count)))
    return Hardware(generation, channels, channels, ll128=False)


def ours(
    collective: str, nbytes: int, num_nodes: int, hardware: Hardware, constants: Constants
) -> dict[tuple[str, str], Prediction]:
    size = max(nbytes, 64)
    rows = table(
        collective, size, num_nodes=num_nodes, ranks_per_node=8, hardware=hardware, constants=constants
    )
    return {
        (row.algorithm, row.protocol): replace(row, nbytes=nbytes)
        for row in rows
        if row.algorithm in ("Tree", "Ring")
    }


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4, 8, 16, 100])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_torch_has_the_same_times_for_every_algorithm_and_protocol_but_for_its_own_terms(
    torch_model, generation, collective, num_nodes
):
    for nbytes in SIZES:
        expected = in_torch(torch_model, collective, nbytes, num_nodes)
        hardware = torch_like(torch_model, generation, num_nodes, nbytes)
        like_torch = LIKE_TORCH if num_nodes == 1 else LIKE_TORCH_BETWEEN_NODES

        found = ours(collective, nbytes, num_nodes, hardware, like_torch)

        assert found.keys() == expected.keys()
        # Bandwidths are whole bytes per second here: one of 10⁸ on two or more nodes.
        assert {pair: row.seconds * 1e6 for pair, row in found.items()} == pytest.approx(
            expected, rel=1e-12 if num_nodes == 1 else 1e-8
        )


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_in_one_node_torch_and_nccl_differ_in_ll128_and_in_trees_with_ll_alone(
    torch_model, generation, collective
):
    differing = set()
    for nbytes in SIZES[2:10]:
        expected = in_torch(torch_model, collective, nbytes, 1)
        found = ours(collective, nbytes, 1, torch_like(torch_model, generation, 1, nbytes), NCCL_2_30)
        assert found.keys() == expected.keys()
        differing |= {
            pair
            for pair, row in found.items()
            if not math.isclose(row.seconds * 1e6, expected[pair], rel_tol=1e-12)
        }

    assert differing <= {("Ring", "LL128"), ("Tree", "LL"), ("Tree", "LL128")}
    if generation in ("hopper", "blackwell"):  # on the others the ceiling of the channels rules
        assert ("Ring", "LL128") in differing
