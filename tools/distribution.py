"""Wheel and source archive, installed into empty environments without torch, and tried there.

python -m tools.distribution dist
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
COMMANDS = (
    ("verify", "ring", "--ranks", "2-8"),
    ("show", "ring", "--ranks", "4"),
    ("simulate", "auto", "--network", "dgx-h100", "--ranks", "16"),
    ("scale", "--network", "dgx-h100", "--ranks", "8"),
    ("plan", "--profile", "resnet50", "--network", "dgx-h100", "--ranks", "8", "--cache", "none"),
)
"""What works without torch."""
_ENTRY = "import importlib.metadata as m; [*m.entry_points(group='{}', name='testbed')][0].load()"
LOADED = (_ENTRY.format("torch.backends") + "()", _ENTRY.format("pytest11"))
"""What torch and pytest load of it."""
PACKAGES = ("collectives", "ddp", "sim", "testbed")
NEEDS_TORCH = ("run", "--ranks", "2", "train.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Install and try what lies in a folder; return 1 where something does not work."""
    parser = argparse.ArgumentParser(prog="python -m tools.distribution")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    archives = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if len(archives) != 2:
        print(f"{folder}: expected a wheel and a source archive, got {len(archives)} files", file=sys.stderr)
        return 1
    faults = [fault for archive in archives for fault in faults_of(archive.resolve())]
    print(*faults or [f"{', '.join(own.name for own in archives)}: all commands work"], sep="\n")
    return int(bool(faults))


def faults_of(archive: Path) -> list[str]:
    """Return in words what of an installed *archive* does not work."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        venv.create(home / "venv", with_pip=True)
        tools = home / "venv" / "bin"
        install = [str(tools / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", CONSTRAINTS, archive], check=True)
        (home / "train.py").write_text("import torch\n")
        faults = [
            f"{archive.name}: testbed {' '.join(command)}: {done.stderr.strip()[-300:]}"
            for command in COMMANDS
            if (done := _tried(home, tools / "testbed", *command)).returncode
        ]
        for package in PACKAGES:  # a user's own modules of these names stand in nobody's way
            (home / f"{package}.py").touch()
        for load in LOADED:
            done = _tried(home, tools / "python", "-c", load)
            if done.returncode:
                faults.append(f"{archive.name}: {load}: {done.stderr.strip()[-300:]}")
        refused = _tried(home, tools / "testbed", *NEEDS_TORCH)
        if refused.returncode != 2 or "extra torch" not in refused.stderr:
            faults.append(f"{archive.name}: testbed run without torch: {refused.stderr.strip()[-300:]}")
        return faults


def _tried(home: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120)


if __name__ == "__main__":
    raise SystemExit(main())
