"""Options of NCCL's process groups: what scripts find and hand over where torch is built without NCCL.

Fields and their defaults are those of torch's ``ProcessGroupNCCL.Options`` and of NCCL's ``ncclConfig_t``;
nothing here acts on them.

Source: torch/csrc/distributed/c10d/init.cpp; nccl.h (``NCCL_CONFIG_INITIALIZER``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

UNDEFINED = -(2**31)
"""What NCCL takes for a field that was not set."""


@dataclass(slots=True)
class NCCLConfig:
    """Settings of one communicator of NCCL."""

    blocking: int = UNDEFINED
    cga_cluster_size: int = UNDEFINED
    min_ctas: int = UNDEFINED
    max_ctas: int = UNDEFINED
    net_name: str | None = None
    split_share: int = UNDEFINED
    traffic_class: int = UNDEFINED
    comm_name: str | None = None
    collnet_enable: int = UNDEFINED
    cta_policy: int = UNDEFINED
    shrink_share: int = UNDEFINED
    nvls_ctas: int = UNDEFINED
    n_channels_per_net_peer: int = UNDEFINED
    nvlink_centric_sched: int = UNDEFINED
    graph_usage_mode: int = UNDEFINED
    num_rma_ctx: int = UNDEFINED


@dataclass
class NCCLOptions:
    """Settings of one process group of NCCL.

    Attributes:
        is_high_priority_stream: whether its stream comes before others.
        config: of its communicators.
        split_from: the group whose communicator is split, if one is.
        split_color: of the part.
        global_ranks_in_group: ranks of its members.
        group_name: its name.
    """

    is_high_priority_stream: bool = False
    config: NCCLConfig = field(default_factory=NCCLConfig, init=False)
    split_from: Any = field(default=None, init=False)
    split_color: int = field(default=-1, init=False)
    global_ranks_in_group: list[int] = field(default_factory=list, init=False)
    group_name: str = field(default="", init=False)
    _timeout: timedelta = field(default=default_pg_timeout, init=False)
    backend: str = field(default="nccl", init=False)


def is_of_nccl(options: object) -> bool:
    """Return whether *options* are those of a group of NCCL, torch's or ours in their place."""
    theirs = getattr(dist, "ProcessGroupNCCL", None)
    return isinstance(options, NCCLOptions if theirs is None else NCCLOptions | theirs.Options)


class NoNCCL:
    """``ProcessGroupNCCL`` where torch is built without it: a place for the names of its options."""

    Options = NCCLOptions
    NCCLConfig = NCCLConfig

    def __init__(self, *args: object) -> None:
        raise RuntimeError("this torch is built without NCCL; call init_process_group or new_group")


def let_options_of_nccl_be_found() -> None:
    """Let scripts find ``torch.distributed.ProcessGroupNCCL`` until the process ends, whatever torch has."""
    if not hasattr(dist, "ProcessGroupNCCL"):
        setattr(dist, "ProcessGroupNCCL", NoNCCL)  # noqa: B010
