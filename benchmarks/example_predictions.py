"""Predictions and timelines of docs/examples.md, made anew.

    python benchmarks/example_predictions.py [WORD…]

With words, only commands that have one of them.  Of the output the figures stay; the losses, the host, the
links and the assumptions are left out.  Pictures get few colours, as they are
part of the repository.  All of it takes some ten minutes on two cores; the figures are the same each time.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "examples.md"
COMMAND = re.compile(r"^\$ testbed (?P<arguments>run .*)\n(?P<output>(?:(?!\$ |```).*\n)*)", re.MULTILINE)
FIGURES = re.compile(r"^(?:iteration|compute|exposed|Note:) .*\n", re.MULTILINE)
COLOURS = 48


def main() -> None:
    """Write the document anew, after each command, so that nothing is lost when it is interrupted."""
    words = sys.argv[1:]
    for found in list(COMMAND.finditer(DOCUMENT.read_text())):
        arguments = found["arguments"]
        if words and not any(word in arguments for word in words):
            continue
        print(f"testbed {arguments}", flush=True)
        text = DOCUMENT.read_text()
        DOCUMENT.write_text(
            text.replace(found[0], f"$ testbed {arguments}\n{figures(shlex.split(arguments))}")
        )


def figures(arguments: list[str]) -> str:
    """Return what the command says of times, and make its picture small."""
    command = [sys.executable, "-W", "ignore", "-m", "testbed", *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    if "--plot" in arguments:
        picture = ROOT / arguments[arguments.index("--plot") + 1]
        with Image.open(picture) as drawn:
            drawn.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
    return "".join(FIGURES.findall(ran.stderr))


if __name__ == "__main__":
    main()
