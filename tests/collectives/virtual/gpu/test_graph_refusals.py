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
MODELS = pytest.mark.parametrize("compute", [None, GPU], ids=["instant", "charged"])


def read(graph, tensor):
    with torch.cuda.graph(graph):
        tensor.sum().item()


def synchronize(graph, tensor):
    with torch.cuda.graph(graph):
        torch.cuda.synchronize()


def reduce(graph, tensor):
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)


def nest(graph, tensor):
    with torch.cuda.graph(graph):
        torch.cuda.CUDAGraph().capture_begin()


def replay(graph, tensor):
    graph.replay()


def begin_on_the_default_stream(graph, tensor):
    graph.capture_begin()


def capture_again(graph, tensor):
    for _ in range(2):
        with torch.cuda.graph(graph):
            tensor.sum()


def replay_within(graph, tensor):
    with torch.cuda.graph(graph):
        tensor.sum()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        graph.replay()


def compute_again(graph, tensor):
    with torch.cuda.graph(graph):
        checkpoint(nn.Dropout(), tensor.requires_grad_(), use_reentrant=False)


def find(graph, tensor):
    with torch.cuda.graph(graph):
        tensor.nonzero()


def gather_a_list(graph, tensor):
    with torch.cuda.graph(graph):
        dist.all_gather([tensor, tensor.clone()], tensor)


def leave_a_stream_alone(graph, tensor):
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.sum()


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (read, "not permitted when stream is capturing"),
        (synchronize, "not permitted when stream is capturing"),
        (nest, "being captured on this rank"),
        (replay, "has captured nothing"),
        (begin_on_the_default_stream, "on a non-default stream"),
        (capture_again, "has been captured; reset"),
        (replay_within, "within a capture is not modelled"),
        (compute_again, "preserve_rng_state=False"),
        (find, "not permitted when stream is capturing"),
    ],
)
@MODELS
def test_what_no_graph_takes_is_refused_by_name(compute, mistake, words):
    with pytest.raises(RankError, match=words):
        in_group(lambda rank: mistake(torch.cuda.CUDAGraph(), torch.ones(4).cuda()), 2, compute=compute)


def test_a_collective_in_a_graph_wants_a_gpu_that_is_modelled():
    with pytest.raises(RankError, match="needs a GPU that is modelled: --compute"):
        in_group(lambda rank: reduce(torch.cuda.CUDAGraph(), torch.ones(4).cuda()), 2)


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


@pytest.mark.parametrize(
    ("mistake", "words"), [(leave_a_stream_alone, "unjoined work"), (gather_a_list, "all_gather_into_tensor")]
)
def test_what_is_known_of_a_modelled_gpu_alone_is_refused_there(mistake, words):
    with pytest.raises(RankError, match=words):
        in_group(
            lambda rank: mistake(torch.cuda.CUDAGraph(), torch.ones(4).cuda()),
            2,
            "nccl",
            compute=GPU,
        )
