"""Files saved on a virtual CUDA device: loaded onto it, as on a real one."""

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import Roofline, run

PLACES: list[tuple[Any, str]] = [
    (None, "saved"), ("cpu", "cpu"), ("cuda", "saved"), ("cuda:1", "cuda:1"),
    (torch.device("cuda:0"), "cuda:0"), ({"cuda:1": "cuda:0"}, "cuda:0"),
    (lambda storage, place: storage, "cpu"), (lambda storage, place: storage.cuda(1), "cuda:1"),
]  # fmt: skip


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_are_loaded_where_they_were_or_where_it_is_asked_for(zipped, compute_model):
    def work(rank):
        torch.cuda.set_device(rank)
        weight = torch.randn(3, 2).cuda()
        file = io.BytesIO()
        torch.save({"weight": weight}, file, _use_new_zipfile_serialization=zipped)

        for place, expected in PLACES:
            file.seek(0)
            loaded = torch.load(file, map_location=place)["weight"]
            assert str(loaded.device) == (f"cuda:{rank}" if expected == "saved" else expected)
            assert loaded.tolist() == weight.tolist()

    run(work, 2, "dgx-h100", compute=compute_model)


def test_models_and_copies_stay_on_their_device():
    def work(rank):
        dist.init_process_group("nccl")
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(f"cuda:{rank}")
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)

        gathered = [None, None]
        dist.all_gather_object(gathered, model[0].weight)
        places = [loaded[0].weight, loaded[1].running_var, copy.copy(model[0].weight), *gathered]
        assert isinstance(loaded[0].weight, nn.Parameter)
        assert loaded(torch.ones(2, 3).cuda(rank)).is_cuda
        return [str(tensor.device) for tensor in places]

    results = run(work, 2, "dgx-h100").results

    assert results == [[f"cuda:{rank}"] * 3 + ["cuda:0", "cuda:1"] for rank in range(2)]
