"""Training that a launcher starts again after a rank was killed: ``torchrun --max-restarts``."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

BACKENDS = ("gloo", "testbed")
STEPS = 6
SECONDS = 120.0

SCRIPT = f"""
import os, signal, sys
from pathlib import Path

import torch
import torch.distributed as dist

backend, folder, culprit, step_of_death = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
checkpoint = folder / "checkpoint.pt"
dist.init_process_group(backend)
torch.manual_seed(0)
module = torch.nn.Linear(4, 2)
model = torch.nn.parallel.DistributedDataParallel(module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first, is_first_life = 0, os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if checkpoint.exists():
    state = torch.load(checkpoint, weights_only=True)
    first = state["step"]
    module.load_state_dict(state["model"])
for step in range(first, {STEPS}):
    if is_first_life and dist.get_rank() == culprit and step == step_of_death:
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(100 * step + dist.get_rank())
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        torch.save({{"step": step + 1, "model": module.state_dict()}}, folder / "partial.pt")
        os.replace(folder / "partial.pt", checkpoint)
    dist.barrier()
if dist.get_rank() == 0:
    torch.save(module.state_dict(), folder / "trained.pt")
dist.destroy_process_group()
"""


def faults_of_restart(backend: str, seed: int) -> list[str]:
    """Kill a rank once under ``torchrun --max-restarts 2``; return in words why it does not train on."""
    chance = random.Random(seed)
    culprit, step = chance.randrange(2), chance.randrange(STEPS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        options = ["--max-restarts", "2", "--monitor-interval", "0.5"]
        script = [str(folder / "train.py"), backend, name, str(culprit), str(step)]
        try:
            ended = subprocess.run(
                [*launcher, *options, *script],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        except subprocess.TimeoutExpired:
            return [f"still runs after {SECONDS:.0f} s, with rank {culprit} killed in step {step}"]
        if ended.returncode or not (folder / "trained.pt").exists():
            said = [line for line in ended.stderr.splitlines() if "Error: " in line]
            return [f"ended with {ended.returncode}, with rank {culprit} killed in step {step}: {said[-1:]}"]
    return []
