"""Contract of every command: one JSON document, a page that asks nothing of a network, lines that fit."""

import csv
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed import cli
from testbed.cli import app, imported
from testbed.output.folder import SCHEMA
from tests.commands import called, reported

ROOT = Path(__file__).parents[3]
STEP = "--profile resnet50 --network ethernet-25g --strategy wait_free"
PAGES = {  # a command line, and what its page has of tables and of plots
    "bench": ("bench --transport sim --nbytes 1M,2M --ranks 4", 1, 1),
    "calibrate": ("calibrate --from rows.csv --network dgx-h100 --collective all_reduce --ranks 8", 1, 0),
    "compare": ("compare result.json other.json", 3, 0),
    "export": ("export ring --ranks 2 --format msccl --output ring.xml", 0, 0),
    "network": ("network dgx-h100 --ranks 16", 1, 1),
    "doctor": ("doctor", 0, 0),
    "env": ("env", 1, 0),
    "fuzz": ("fuzz ring --seeds 2 --workers 1", 0, 0),
    "plan": (f"plan {STEP} --ranks 8,16 --workers 1", 3, 1),
    "profile": ("profile train.py", 0, 0),
    "run": ("run --ranks 2 script.py", 1, 1),
    "same": ("same train.py --ranks 1,2", 1, 0),
    "scale": (f"scale {STEP} --ranks 8,16", 2, 1),
    "show": ("show ring --ranks 4", 0, 1),
    "simulate": ("simulate ring --ranks 4 --nbytes 1M", 0, 1),
    "synthesize": ("synthesize --network aws-p4d --ranks 4 --collective all_gather --nbytes 1M", 0, 0),
    "tune": (f"tune {STEP} --ranks 2 --algorithm ring", 3, 1),
    "validate": ("validate --table rows.csv --network dgx-h100 --collective all_reduce --ranks 8", 2, 0),
    "verify": ("verify direct --collective gather --ranks 2-4", 1, 0),
}
COSTLY = {"fuzz", "plan", "run", "same", "tune"}
TRAIN = """
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(9):
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
VOID = {"meta", "link", "br", "hr", "img", "input", "col"}


class Parsed(HTMLParser):
    """A page: how many of each element, which are left open, and which addresses it would ask."""

    def __init__(self, text):
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [
            value
            for name, value in attrs
            if name in {"src", "href"} and value and "//" in value.partition("data:")[0]
        ]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """The files that command lines above name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    (tmp_path / "script.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.barrier()\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "rows.csv").write_text("size_bytes,seconds\n1048576,0.0001\n67108864,0.0009\n")
    result = called("simulate ring --ranks 4 --nbytes 1M --json").stdout
    (tmp_path / "result.json").write_text(result)
    (tmp_path / "other.json").write_text(called("simulate tree --ranks 4 --nbytes 1M --json").stdout)
    return tmp_path


COMMANDS = {name: imported(name) for name in cli.COMMANDS}


def commands_with(option):
    return {name for name, command in COMMANDS.items() for own in command.params if option in own.opts}


def test_every_command_that_makes_a_page_or_a_document_is_here():
    assert commands_with("--html") == PAGES.keys()
    assert commands_with("--json") == COMMANDS.keys() == PAGES.keys()


def each(names):
    return [pytest.param(name, marks=[pytest.mark.costly] if name in COSTLY else []) for name in names]


def check_that_it_is_a_result(document):
    """Check what every document has: how it was got, an answer in words, rows, and what they assume."""
    assert document["schema"] == SCHEMA
    assert {"command", "versions", "method", "model", "topologies", "seed"} <= document.keys()
    assert {"collective-testbed", "python", "numpy"} <= document["versions"].keys()
    assert document["method"]
    assert document["question"]
    assert document["answer"]
    assert {type(document[name]) for name in ("question", "answer")} == {str}
    assert isinstance(document["assumptions"], dict)
    assert document["rows"]
    fields = {field for row in document["rows"] for field in row}
    assert {field for field in document["asked"]["rows"] if field in fields}
    assert all(document.get(name) is not None for name in document["asked"] if name)


TYPES = {
    "string": str, "array": list, "object": dict, "null": type(None), "integer": int, "number": (int, float),
}  # fmt: skip


def mistakes(value, schema, where=""):
    """Return what *schema* does not allow of *value*: of JSON Schema what ours use."""
    types = schema.get("type", [])
    allowed = tuple(TYPES[name] for name in ([types] if isinstance(types, str) else types))
    if allowed and not isinstance(value, allowed):
        return [f"{where}: {value!r} is not of type {types}"]
    found = [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
    if value != schema.get("const", value):
        found.append(f"{where}: {value!r}")
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, own in value.items():
            if name in known or isinstance(more, dict):
                found += mistakes(own, known.get(name, more), f"{where}.{name}")
            elif not more:
                found.append(f"{where}: unknown {name}")
    for own in value if isinstance(value, list) else ():
        found += mistakes(own, schema.get("items", {}), f"{where}[]")
    return found


def check_against_the_schema(command, document):
    """Check *document* against the schema in docs/, and its rows against the columns of *command*."""
    schema = json.loads((ROOT / "docs" / "result.schema.json").read_text(encoding="utf-8"))
    assert mistakes(document, schema) == []
    kinds = [columns for name, columns in schema["$defs"].items() if name.split()[0] == command]
    of_each = [[wrong for row in document["rows"] for wrong in mistakes(row, kind)] for kind in kinds]
    assert min(of_each, key=len) == []


def test_a_document_that_is_no_result_is_told_from_one():
    schema = json.loads((ROOT / "docs" / "result.schema.json").read_text(encoding="utf-8"))

    assert len(mistakes({}, schema)) == len(schema["required"])
    assert mistakes({"seconds": "1"}, schema["$defs"]["simulate"]) != []
    assert mistakes({"secs": 1.0}, schema["$defs"]["simulate"]) != []
    assert {name.split()[0] for name in schema["$defs"]} == PAGES.keys()


def test_what_iterations_on_a_gpu_are_lost_to_is_in_the_schema(inputs):
    document = reported("run --fake --ranks 2 --network dgx-h100 --compute h100 train.py")
    other = document | {"lost_to": [{"iteration": 1, "cause": "host", "time": 0.0}]}

    check_against_the_schema("run", document)
    assert {own["iteration"] for own in document["lost_to"]} == {own["iteration"] for own in document["rows"]}
    with pytest.raises(AssertionError, match="lost_to"):
        check_against_the_schema("run", other)


@pytest.mark.parametrize("name", each(PAGES))
def test_a_result_is_one_document_a_page_that_asks_no_address_outside_and_rows(name, inputs, monkeypatch):
    line, tables, plots = PAGES[name]
    monkeypatch.setattr(sys, "argv", ["testbed", *line.split()])

    command, *words = line.split()
    draws = name in commands_with("--plot")
    files = ["--html", "page.html", "--csv", "rows.csv.csv", *(["--plot", "plot.svg"] if draws else [])]
    done = CliRunner().invoke(app, [command, "--json", *files, *words])

    if draws and not plots:
        assert (done.exit_code, "--plot plot.svg: " in done.stderr) == (2, True), done.output
    else:
        assert done.exit_code in {0, 1}, done.output
    assert (inputs / "plot.svg").exists() == (plots > 0)
    document = json.loads(done.stdout)
    check_that_it_is_a_result(document)
    check_against_the_schema(name, document)
    with (inputs / "rows.csv.csv").open(newline="", encoding="utf-8") as rows:
        assert len(list(csv.DictReader(rows))) == len(document["rows"])
    text = (inputs / "page.html").read_text(encoding="utf-8")
    page = Parsed(text)
    assert page.open == []
    assert page.addresses == []
    assert "@import" not in text
    assert not re.search(r"url\((?!['\"]?data:)", text.split("</style>")[0])
    assert page.elements["h1"] == page.elements["footer"] == 1
    assert page.elements["table"] == tables
    assert (page.elements["script"] + page.elements["img"] > 0) == (plots > 0)
    assert f"<pre>testbed {line}</pre>" in text


def on_terminal(columns, line, folder):
    """Return how a command ends on a terminal of so many columns, and the lines that are seen there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {
        name: value for name, value in os.environ.items() if name not in {"COLUMNS", "CI", "NO_COLOR"}
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", *line.split()],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm"},
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # nobody holds the other end any more
            break
        if not piece:
            break
        printed += piece
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode())
    return process.wait(60), [line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n")]


@pytest.mark.costly
@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize(
    "line",
    [PAGES[name][0] for name in PAGES if name not in ("calibrate", "export", "profile", "validate")],
)
def test_no_line_is_wider_than_the_terminal(columns, line, inputs):
    code, lines = on_terminal(columns, line, inputs)

    assert code in {0, 1}
    assert [seen for seen in lines if len(seen) > columns] == []
    assert max(map(len, lines)) > 20
