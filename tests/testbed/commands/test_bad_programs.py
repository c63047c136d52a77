"""Commands that take FILE.py:FUNCTION, with programs that are wrong: one error, and never exit code 0."""

import pytest
from typer.testing import CliRunner

from testbed.cli import app

PROGRAMS = {
    "wrong": "yield Send((rank + 1) % world_size, 0), RecvReduce((rank - 1) % world_size, 0)",
    "deadlock": "yield Recv((rank - 1) % world_size, 0)\n    yield Send((rank + 1) % world_size, 0)",
    "half a chunk": "yield Send((rank + 1) % world_size, 0.5), Recv((rank - 1) % world_size, 0.5)",
    "negative chunk": "yield Send((rank + 1) % world_size, -1), Recv((rank - 1) % world_size, -1)",
    "huge chunk": "yield Send((rank + 1) % world_size, 10**12), Recv((rank - 1) % world_size, 10**12)",
    "no rank": "yield Send(99, 0)",
    "itself": "yield Send(rank, 0), Recv(rank, 0)",
    "garbage": "yield 42",
    "returns None": "return None",
    "returns a number": "return 5",
    "raises": "raise RuntimeError('boom')\n    yield",
    "raises StopIteration": "raise StopIteration\n    yield",
    "recursion": "yield from f(rank, world_size)",
    "exits": "import sys\n    print('not in the output')\n    sys.exit(0)\n    yield",
    "leaves": "import os\n    os._exit(0)\n    yield",
    "interrupts": "raise KeyboardInterrupt\n    yield",
    "closes": "raise GeneratorExit\n    yield",
    "loops": "while True:\n        pass\n    yield",
    "never ends": "while True:\n        yield ()",
    "no arguments": "yield",
    "exits on import": "import sys; sys.exit(0)",
    "leaves on import": "import os; os._exit(0)",
    "syntax": "def f(:",
    "class": "class f: pass",
    "builtin": "f = print",
    "coroutine": "async def f(rank, world_size): pass",
}
"""What a program does, or for those at the end, the whole file."""

WHOLE_FILES = ("exits on import", "leaves on import", "syntax", "class", "builtin", "coroutine")

COMMANDS = {
    "verify": "verify PROGRAM --ranks 2",
    "show": "show PROGRAM --ranks 2",
    "export": "export PROGRAM --format msccl --ranks 2 --output FOLDER/out.xml",
    "simulate": "simulate PROGRAM --ranks 2 --nbytes 4K --json",
    "bench": "bench --algorithm PROGRAM --ranks 2 --nbytes 1K --json",
    "threads": "bench --transport threads --algorithm PROGRAM --ranks 2 --nbytes 1K",
    "scale": "scale --algorithm PROGRAM --network switch-100g --ranks 2 --json",
    "tune": "tune --algorithm PROGRAM --ranks 2 --json",
    "run": "run --algorithm PROGRAM --ranks 2 FOLDER/script.py",
    "processes": "run --algorithm PROGRAM --processes 2 FOLDER/script.py",
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("collectives.catalogue.bounds.STEP_SECONDS", 0.2)
    monkeypatch.setattr("collectives.catalogue.bounds.TICK_SECONDS", 0.02)
    monkeypatch.setattr("collectives.catalogue.user_files.MAX_STEPS", 100)


IN_EVERY_COMMAND = ("wrong", "garbage", "exits", "leaves on import", "loops", "never ends")


@pytest.mark.parametrize(
    ("command", "program"),
    [
        *((command, program) for command in COMMANDS for program in IN_EVERY_COMMAND),
        *(("simulate", program) for program in PROGRAMS if program not in IN_EVERY_COMMAND),
    ],
)
def test_a_wrong_program_ends_in_one_error_in_every_command(command, program, tmp_path):
    path = tmp_path / "mine.py"
    head = "def f():" if program == "no arguments" else "def f(rank, world_size):"
    body = PROGRAMS[program] if program in WHOLE_FILES else f"{head}\n    {PROGRAMS[program]}"
    path.write_text(f"from collectives import Recv, RecvReduce, Send\n{body}\n")
    (tmp_path / "script.py").write_text("import torch.distributed as dist\ndist.init_process_group()\n")
    words = COMMANDS[command].replace("PROGRAM", f"{path}:f").replace("FOLDER", str(tmp_path)).split()

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 1 if program == "wrong" else result.exit_code in (1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    told = result.stdout if command == "verify" and not result.stderr else result.stderr
    assert told.strip()
    if "--json" in words:
        assert result.stdout == ""
