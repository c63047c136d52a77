"""Options of NCCL's groups, which scripts hand over as ``pg_options`` wherever their groups are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from collectives.torch_backend import create
from collectives.torch_backend.nccl_options import NCCLOptions, NoNCCL, is_of_nccl
from collectives.virtual import run
from tests.given import switch


def test_a_group_on_rank_threads_takes_them_and_shows_them() -> None:
    def work(rank: int) -> Any:
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options.config.min_ctas, options.config.cga_cluster_size = 4, 2
        dist.init_process_group("nccl", pg_options=options)
        group: Any = dist.new_group(backend="nccl", pg_options=dist.ProcessGroupNCCL.Options())
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        shown = dist.group.WORLD._get_backend(torch.device("cuda")).options  # type: ignore[union-attr]
        return tensor.item(), shown.config.min_ctas, group.options.is_high_priority_stream

    assert run(work, network=switch(2)).results == [(2.0, 4, False)] * 2


def test_a_group_between_processes_takes_them_and_no_others() -> None:
    options = NoNCCL.Options()
    options.config.max_ctas = 8
    store = dist.HashStore()
    place = SimpleNamespace(
        group_id="alone", group_rank=0, group_size=1, global_ranks_in_group=[0], store=store
    )
    place.timeout = dist.constants.default_pg_timeout

    group = create(place, options)

    assert group.options is options
    with pytest.raises(TypeError, match=r"a TestbedOptions or ProcessGroupNCCL\.Options, got dict"):
        create(place, {"is_high_priority_stream": True})


def test_those_in_place_of_nccls_have_its_fields_and_no_others() -> None:
    options = NCCLOptions(is_high_priority_stream=True)

    assert is_of_nccl(options)
    assert options.config.min_ctas == -(2**31)
    with pytest.raises(AttributeError):
        options.config.min_cta = 4  # type: ignore[attr-defined]
