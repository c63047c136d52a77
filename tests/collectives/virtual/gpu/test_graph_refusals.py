"""CUDA graphs: what no capture takes is refused by name, and leaves the next one alone."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from collectives.virtual import Roofline, run
from sim.errors import RankError
from tests.collectives.virtual.clusters import in_group

GPU = Roofline("h100")


def captured(body):
    """Return a mistake that is made within a capture."""

    def mistake(graph, tensor):
        with torch.cuda.graph(graph):
            body(tensor)

    return mistake


def capture_again(graph, tensor):
    for _ in range(2):
        with torch.cuda.graph(graph):
            tensor.sum()


def replay_within(graph, tensor):
    with torch.cuda.graph(graph):
        tensor.sum()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        graph.replay()


def compute_again(tensor):
    checkpoint(nn.Dropout(), tensor.requires_grad_(), use_reentrant=False)


def leave_a_stream_alone(tensor):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tensor.sum()


MISTAKES = {
    "read": (captured(lambda tensor: tensor.sum().item()), "not permitted when stream is capturing"),
    "synchronize": (captured(lambda _: torch.cuda.synchronize()), "not permitted when stream is capturing"),
    "find": (captured(lambda tensor: tensor.nonzero()), "not permitted when stream is capturing"),
    "nest": (captured(lambda _: torch.cuda.CUDAGraph().capture_begin()), "being captured on this rank"),
    "replay": (lambda graph, _: graph.replay(), "has captured nothing"),
    "default stream": (lambda graph, _: graph.capture_begin(), "on a non-default stream"),
    "capture again": (capture_again, "has been captured; reset"),
    "replay within": (replay_within, "within a capture is not modelled"),
    "compute again": (captured(compute_again), "preserve_rng_state=False"),
}
WITHOUT_A_MODEL = {
    **MISTAKES,
    "reduce": (captured(dist.all_reduce), "needs a GPU that is modelled: --compute"),
}
ON_A_GPU = {
    **MISTAKES,
    "leave a stream alone": (captured(leave_a_stream_alone), "unjoined work"),
    "gather a list": (
        captured(lambda tensor: dist.all_gather([tensor, tensor.clone()], tensor)), "all_gather_into_tensor"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("compute", "mistake", "words"),
    [
        pytest.param(compute, *row, id=f"{name}, {model}")
        for model, compute, rows in (("instant", None, WITHOUT_A_MODEL), ("charged", GPU, ON_A_GPU))
        for name, row in rows.items()
    ],
)
def test_what_no_graph_takes_is_refused_by_name(compute, mistake, words):
    def work(rank):
        mistake(torch.cuda.CUDAGraph(), torch.ones(4).cuda())

    with pytest.raises(RankError, match=words):
        in_group(work, 2, "nccl", compute=compute)


def test_what_fails_in_a_capture_is_told_and_the_next_capture_works():
    def work(rank):
        tensor, graph, side = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()

        def fail():
            with torch.cuda.graph(graph):
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    tensor.add_(1)
                raise KeyError("of the script")

        with pytest.raises(KeyError, match="of the script"):
            fail()
        with torch.cuda.graph(graph):
            tensor += 1
        graph.replay()
        return tensor.tolist()

    assert run(work, 1, compute=GPU).results == [[2] * 4]
