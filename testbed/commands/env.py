"""``testbed env``: versions, backends and devices of this machine, and which tests can run on it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from testbed.errors import has_torch
from testbed.options.command import command
from testbed.output.table import counted
from testbed.result import Grid, Result, Rows, asked, found

EXAMPLES = """\b
Examples:
  testbed env
  testbed env --json
"""

MODEL = "asked of this machine: libraries, devices, and one attempt to make a network namespace"

COLUMNS = (*asked("name"), *found("value"))


@command
def env() -> Result:
    """Show what this machine has and can do.

    Versions of Python, torch and NCCL, the GPUs, and whether shaped networks can be made here.
    """
    facts = {**_python(), **_torch(), **_shaping()}
    cells = [(name.replace("_", " "), _spell(value)) for name, value in facts.items()]
    return Result(
        question="What does this machine have, and what can it do?",
        answer=_answer(facts),
        method="measured",
        model=MODEL,
        rows=Rows.of(COLUMNS, facts.items()),
        body={"environment": facts},
        parts=[Grid(("", "this machine"), cells, text_columns=2)],
    )


def _answer(facts: Mapping[str, Any]) -> str:
    """Return in a sentence what of *facts* decides what can be done."""
    torch = f"torch {facts['torch']}" if facts["torch"] else "no torch"
    gpus = counted(len(facts.get("gpus", ())), "GPU")
    shaped = "shaped networks can be made" if facts["shaped_networks"] else "no shaped networks"
    return f"Python {facts['python']} on {counted(facts['cores'], 'core')}, {torch}, {gpus}, {shaped}."


def _python() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {"python": platform.python_version(), "platform": platform.platform(), "cores": cores}


def _torch() -> dict[str, Any]:
    if not has_torch():
        return {"torch": False}
    import torch
    import torch.distributed as dist

    built = dist.is_available()
    gpus = [torch.cuda.get_device_name(gpu) for gpu in range(torch.cuda.device_count())]
    nccl = built and dist.is_nccl_available() and torch.cuda.is_available()
    version: Any = torch.cuda.nccl.version
    return {
        "torch": torch.__version__,
        "gloo": built and dist.is_gloo_available(),
        "nccl": ".".join(map(str, version())) if nccl else False,
        "cuda": torch.version.cuda or False,
        "gpus": gpus,
    }


def _shaping() -> dict[str, Any]:
    """Return whether network namespaces with shaped links can be made, and if not, why."""
    missing = [program for program in ("ip", "tc", "unshare") if shutil.which(program) is None]
    reason = ""
    if missing:
        reason = f"missing: {', '.join(missing)} (iproute2, util-linux)"
    elif os.geteuid() != 0:
        reason = "needs root"
    else:
        script = (
            "ip link add name v0 type veth peer name v1 && "
            "tc qdisc add dev v0 root handle 1: htb default 1 && "
            "tc class add dev v0 parent 1: classid 1:1 htb rate 1gbit && "
            "tc filter add dev v0 parent 1: protocol ip u32 match ip src 10.0.0.1/32 flowid 1:1"
        )
        tried = subprocess.run(
            ["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, timeout=20, check=False
        )
        if tried.returncode:
            reason = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else "refused"
    return {"shaped_networks": not reason, "shaped_networks_reason": reason or None}


def _spell(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
