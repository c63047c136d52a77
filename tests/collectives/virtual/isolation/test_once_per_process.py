"""State kept once per process by torch, Python and numpy: each rank's own, and as before after a run."""

import contextlib
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from collectives.virtual import run
from collectives.virtual.diagnosis import checks
from sim.errors import DeadlockError, RankError
from tests.collectives.virtual.clusters import all_reduce_once, script
from tests.given import switch

_LOOKED_AT = frozenset(
    {"builtins", "numpy", "os", "random", "signal", "sys", "tempfile", "threading", "torch", "warnings"}
)
_COUNTERS = frozenset({
    "torch._subclasses.meta_utils.DESCRIBER_NEXT_ID",
    "torch.utils.hooks.RemovableHandle.next_id",
})  # fmt: skip
"""Counters, by which nothing can be told of a rank."""

CHANGES = """
    import builtins, os, random, sys, tempfile, threading, warnings
    import numpy, torch, torch.distributed as dist
    import torch.__future__
    from torch import nn
    from torch.nn.modules import module as modules
    from torch.optim.optimizer import register_optimizer_step_pre_hook, register_optimizer_step_post_hook
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    way = int(sys.argv[1]) + rank

    os.environ["KEPT"], os.environ["NEW"] = str(way), "variable"
    os.chdir(tempfile.gettempdir())
    sys.argv.append("more"), sys.path.append("more")
    torch.manual_seed(way), numpy.random.seed(way), random.seed(way)
    torch.set_default_dtype(torch.float64 if way % 2 else torch.float32)
    torch.set_num_threads(torch.get_num_threads() + 1)
    drawn = []
    for _ in range(3):
        dist.barrier()
        assert dist.get_rank() == rank
        drawn.append((torch.rand(1).item(), numpy.random.rand(), random.random(), os.environ["KEPT"]))
    said, printed = [], builtins.print
    builtins.print = lambda *values, **options: said.append((rank, *values))
    called = []
    modules.register_module_forward_pre_hook(lambda *values: called.append("before"))
    modules.register_module_forward_hook(lambda *values: called.append("after"))
    modules.register_module_parameter_registration_hook(lambda *values: called.append("parameter") and None)
    register_optimizer_step_pre_hook(lambda *values: called.append("step"))
    register_optimizer_step_post_hook(lambda *values: called.append("stepped"))
    torch.set_printoptions(precision=2 + way)
    torch.use_deterministic_algorithms(bool(way % 2))
    torch.autograd.set_detect_anomaly(bool(way % 2), check_nan=False)
    torch.set_float32_matmul_precision(("highest", "high", "medium")[way % 3])
    torch.backends.cudnn.benchmark = bool(way % 2)
    torch.backends.cudnn.allow_tf32 = bool(way % 2)
    torch.backends.cuda.enable_flash_sdp(bool(way % 2))
    torch.set_warn_always(bool(way % 2))
    torch.__future__.set_overwrite_module_params_on_conversion(bool(way % 2))
    tempfile.tempdir = f"/tmp/{way}"
    warnings.showwarning = lambda *values: said.append(rank)
    sys.setrecursionlimit(2000 + way)

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dist.barrier()
    for _ in range(rank + 1):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    dist.barrier()
    print("loss")
    seen = (
        said, called.count("before"), called.count("after"), called.count("parameter"), called.count("step"),
        called.count("stepped"), repr(torch.tensor(1 / 3)), torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.flash_sdp_enabled(),
        torch.is_warn_always_enabled(), torch.__future__.get_overwrite_module_params_on_conversion(),
        tempfile.gettempdir(), torch.empty(1).dtype, drawn,
    )
    """


def _expected(rank: int, way: int) -> tuple[Any, ...]:
    odd = bool(way % 2)
    precision = ("highest", "high", "medium")[way % 3]
    shown = f"tensor({1 / 3:.{2 + way}f})"
    calls = (rank + 1, rank + 1, 2, rank + 1, rank + 1)
    said = ([(rank, "loss")], *calls, shown, odd, odd, precision, odd, odd, odd, odd, odd, f"/tmp/{way}")
    dtype = torch.float64 if odd else torch.float32
    generator, array, one = torch.Generator().manual_seed(way), np.random.RandomState(way), random.Random(way)
    drawn = [
        (torch.rand(1, dtype=dtype, generator=generator).item(), array.rand(), one.random(), str(way))
        for _ in range(3)
    ]
    return *said, dtype, drawn


def state_of_the_process() -> dict[str, Any]:
    """Return what modules and classes of torch and of Python hold, in a form that can be compared."""
    state = {
        "environment": dict(os.environ), "directory": Path.cwd(), "path": list(sys.path),
        "argv": list(sys.argv), "warnings": list(warnings.filters), "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(), "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state(legacy=False)["state"]["key"].tolist(), "random": random.getstate(),
        "future": torch._C.Future.wait,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "precision": torch.get_float32_matmul_precision(), "benchmark": torch.backends.cudnn.benchmark,
        "convolutions": torch.backends.cudnn.allow_tf32, "flash": torch.backends.cuda.flash_sdp_enabled(),
        "depth": sys.getrecursionlimit(),
    }  # fmt: skip
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _LOOKED_AT and type(module) is ModuleType:
            for attribute, value in list(vars(module).items()):
                state[f"{name}.{attribute}"] = _look(value)
                if _home_of(value) == name:
                    inside = _inside(value)
                    state |= {f"{name}.{attribute}.{inner}": _look(held) for inner, held in inside.items()}
    return {name: value for name, value in state.items() if name not in _COUNTERS}


def _home_of(value):
    kind = type(value)
    return vars(value).get("__module__") if issubclass(kind, type) else kind.__module__


def _inside(value) -> dict[str, Any]:
    """Return the attributes of a class or an object, without asking it, as some answer with a warning."""
    if issubclass(type(value), type):
        return dict(vars(value))
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _look(value):
    kind = type(value)
    if kind in (bool, int, str, float, type(None)):
        return repr(value)
    return (kind, len(value)) if issubclass(kind, dict | list | set) else id(value)


@pytest.mark.parametrize(
    "ending", ["", "raise ValueError", "sys.exit(3)", "dist.barrier() if rank else None"]
)
def test_each_rank_has_what_a_process_has_once_and_none_of_it_stays_however_it_ends(
    tmp_path, monkeypatch, ending
):
    monkeypatch.setenv("KEPT", "as it was")
    path = script(tmp_path, f"{CHANGES}\n    {ending}\n")
    with pytest.raises((RankError, DeadlockError)) if ending else contextlib.nullcontext():
        run(path, network=switch(2), argv=["0"])  # what it imports stays imported
    before = state_of_the_process()

    with pytest.raises((RankError, DeadlockError)) if ending else contextlib.nullcontext():
        outcome = run(path, network=switch(2), argv=["3"])
        for rank, variables in enumerate(outcome.results):
            assert variables["seen"] == _expected(rank, 3 + rank)

    after = state_of_the_process()
    assert {name: (before.get(name), after[name]) for name in after if before.get(name) != after[name]} == {}
    inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "KEPT=as it was" in inherited
    assert not any(line.startswith(("NEW=", "RANK=")) for line in inherited)
    assert run(all_reduce_once, network=switch(2)).results == [1.0, 1.0]


def test_ranks_of_fsdp1_gather_the_state_of_their_optimizers(tmp_path):
    path = script(
        tmp_path,
        """
        import os, warnings, torch, torch.distributed as dist
        warnings.simplefilter("ignore")  # of functions of torch that FSDP1 itself calls
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        dist.init_process_group("nccl")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        model = FSDP(torch.nn.Linear(4, 4).cuda())
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 4, device="cuda")).sum().backward()
        optimizer.step()
        seen = sorted(FSDP.optim_state_dict(model, optimizer)["state"])
        """,
    )

    outcome = run(path, 2, "dgx-h100")

    assert [variables["seen"] for variables in outcome.results] == [["bias", "weight"]] * 2


@pytest.mark.parametrize(
    ("call", "is_noted"), [("dist.all_reduce(torch.ones(1))", True), ("part.full_tensor()", False)]
)
def test_what_torchs_comm_mode_does_not_count_is_said(tmp_path, call, is_noted):
    path = script(
        tmp_path,
        f"""
        import torch, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        from torch.distributed.tensor.debug import CommDebugMode
        dist.init_process_group("gloo")
        part = distribute_tensor(torch.ones(4, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
        with CommDebugMode() as counting:
            {call}
        seen = counting.get_total_counts()
        """,
    )

    outcome = run(path, network=switch(2))

    assert (checks.TEXT in outcome.report.notices) == is_noted
    assert [variables["seen"] for variables in outcome.results] == [int(not is_noted)] * 2
