"""Launcher of ranks as forked processes: reads jobs from stdin, a line each, and writes how they ended.

    {"script": "…/wrong.py", "num_ranks": 4, "debug": "OFF", "timeout": 5}
    {"first_failed": 2, "code": 1, "text": "what that rank wrote to stderr"}

``first_failed`` is None where no rank has failed; then ``code`` is 0, or None where some had not ended when
the time of the job was over.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.tensor
import torch.utils.data

PATIENCE_SECONDS = 10.0
"""How long after its time-out a script may still run."""
GRACE_SECONDS = 0.5
"""How long the other ranks may go on after one has failed."""


def main() -> None:
    """Carry out one job after another."""
    for line in sys.stdin:
        job = json.loads(line)
        reading, writing = os.pipe()
        supervisor = os.fork()
        if supervisor == 0:
            os.close(reading)
            os.write(writing, json.dumps(_carry_out(job)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answers:
            print(answers.read(), flush=True)
        os.waitpid(supervisor, 0)


def _carry_out(job: dict[str, Any]) -> dict[str, Any]:
    """Run the ranks of *job* to their end, or to that of its time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ranks = {_forked(job, rank, port, folder): rank for rank in range(job["num_ranks"])}
        store = dist.TCPStore(
            "127.0.0.1", port, is_master=True, wait_for_workers=False
        )  # as torchrun's agent
        codes = _awaited(ranks, job["timeout"] + PATIENCE_SECONDS)
        del store
        failed = next(((rank, code) for rank, code in codes.items() if code != 0), None)
        if failed is None:
            return {"first_failed": None, "code": 0 if len(codes) == len(ranks) else None, "text": ""}
        written = Path(folder, str(failed[0])).read_text(errors="replace")
        return {"first_failed": failed[0], "code": failed[1], "text": written[-20_000:]}


def _awaited(ranks: dict[int, int], seconds: float) -> dict[int, int]:
    """Return the exit codes of the processes *ranks*, by rank, in the order in which they ended."""
    codes: dict[int, int] = {}
    running = dict(ranks)
    deadline = time.monotonic() + seconds
    while running and time.monotonic() < deadline:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            time.sleep(0.01)
            continue
        codes[running.pop(process)] = os.waitstatus_to_exitcode(status)
        if any(codes.values()):
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    for process in running:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    return codes


def _forked(job: dict[str, Any], rank: int, port: int, folder: str) -> int:
    """Return the process that runs the script of *job* as *rank*."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process

    written = os.open(os.path.join(folder, str(rank)), os.O_CREAT | os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, nothing), (2, written)):
        os.dup2(source, target)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job["num_ranks"]),
        "LOCAL_WORLD_SIZE": str(job["num_ranks"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_DISTRIBUTED_DEBUG": job["debug"],
    }
    code = 0
    try:
        _prepare(job)
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _prepare(job: dict[str, Any]) -> None:
    """Give this process the debug level and the time-out of *job*."""
    c10d: Any = dist.distributed_c10d
    torch.set_num_threads(1)
    dist.set_debug_level_from_env()
    c10d.default_pg_timeout = timedelta(seconds=job["timeout"])
    sys.argv = [job["script"]]


if __name__ == "__main__":
    main()
