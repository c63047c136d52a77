"""Each example of a framework learns in virtual time as under torchrun, where the framework is installed."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "frameworks"
EXAMPLES = {
    "with_accelerate.py": ("accelerate", []), "with_lightning.py": ("lightning", []),
    "with_trainer.py": ("transformers", []), "titan_loop.py": ("torch", ["--tp", "2"]),
}  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.timeout(600)]


def steps_of(*command):
    """Return what *command* prints of each step, and the loss, to all digits."""
    printed = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    steps = re.findall(r"^step (\d+): loss ([\d.]+)$", printed.stdout, re.MULTILINE)
    assert len(steps) >= 3, printed.stdout + printed.stderr
    return steps


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_a_framework_learns_as_under_torchrun(name):
    package, arguments = EXAMPLES[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install -e '.[frameworks]'")
    script = str(FOLDER / name)

    virtual = steps_of("testbed", "run", "--ranks", "2", "--compute", "h100", script, *arguments)
    real = steps_of("torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, *arguments)

    assert virtual == real


def test_every_example_of_a_framework_is_tried():
    assert {path.name for path in FOLDER.glob("*.py")} == EXAMPLES.keys()
    assert not any(importlib.util.find_spec(path.stem) for path in FOLDER.glob("*.py"))
