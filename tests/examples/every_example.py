"""Run under torchrun: each example on each backend, one after another, as importing torch takes seconds.

Each run gets its own port for the rendezvous, as the launcher's store knows earlier ones.
Rank 0 writes what every one has printed.
"""

import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    printed = []
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    for port, script, *arguments in jobs:
        os.environ["MASTER_PORT"] = str(port)
        sys.argv = [script, *arguments]
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            runpy.run_path(script, run_name="__main__")
        printed.append(output.getvalue())
    if os.environ["RANK"] == "0":
        Path(os.environ["PRINTED"]).write_text(json.dumps(printed))


if __name__ == "__main__":
    main()
