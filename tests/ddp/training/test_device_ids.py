import pytest
import torch.distributed as dist
from torch import nn

from collectives.virtual import Roofline, run
from ddp import DistributedDataParallel
from sim import RankError


@pytest.mark.parametrize("wrong", [{"device_ids": [1]}, {"device_ids": ["cuda:0"], "output_device": 1}])
def test_devices_other_than_the_modules_are_refused(wrong):
    def work(rank):
        dist.init_process_group("nccl")
        DistributedDataParallel(nn.Linear(2, 2).to("cuda:0"), **wrong)

    with pytest.raises(RankError, match=r"must be the module's, cuda:0; got 1"):
        run(work, 2, "dgx-h100", compute=Roofline("h100"))
