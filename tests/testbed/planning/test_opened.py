import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from collectives.catalogue.resolve import resolve_algorithm
from collectives.formats.schedule_file import NetworkOfSchedule, Schedule
from ddp.profiles import Profile
from testbed.planning import plan
from testbed.planning.cache import Cache
from testbed.planning.opened import Files, recording
from testbed.planning.sweep import as_they_are, evaluate_task

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from size_of_the_script import TIMES

dist.init_process_group("gloo")
with open(sys.argv[1]) as file:
    size = json.load(file)["n"] * TIMES

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bucket0 = torch.nn.Parameter(torch.zeros(size))

    def forward(self):
        return self.bucket0.sum()

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(NUM_REDUCTIONS + 2):
    model().backward()
    for _ in range(NUM_REDUCTIONS):
        dist.all_reduce(model.bucket0.grad)
    optimizer.step()
"""


def network(path, is_slow):
    rate = "10Gbps" if is_slow else "100Gbps"
    path.write_text(f'schema = 1\nkind = "switch"\nbandwidth = "{rate}"\nlatency = "2us"\nnum_ranks = 4\n')


def profile(path, is_slow):
    Profile.uniform(1, 2**12, 2e-3 if is_slow else 1e-3).save(path)


def table(path, is_slow):
    fastest, sized = "chain" if is_slow else "ring", {"collective": "all_reduce", "size_bytes": 2**20}
    rows = [{**sized, "algorithm": own, "time_us": 1.0 + (own != fastest)} for own in ("ring", "chain")]
    path.write_text(json.dumps({"ranks": 4, "transport": "sim", "rows": rows}))


def program(path, is_slow):
    name = "chain" if is_slow else "ring"
    path.write_text(
        f"from collectives.algorithms import {name} as shipped\n\n"
        "def mine(rank, world_size):\n    yield from shipped(rank, world_size)\n"
    )


def schedule(path, is_slow):
    whose = NetworkOfSchedule(name="any", digest="0" * 16)
    Schedule.of(resolve_algorithm("chain" if is_slow else "ring"), 4, whose).save(path)


def of_text(fast, slow):
    """Return what writes the one text or the other."""
    return lambda path, is_slow: path.write_text(slow if is_slow else fast)


MAKERS = {
    "net.toml": network,
    "p.json": profile,
    "t.json": table,
    "mine.py": program,
    "s.json": schedule,
    "cfg.json": of_text('{"n": 1024}', '{"n": 1048576}'),
    "train.py": of_text(*(SCRIPT.replace("NUM_REDUCTIONS", number) for number in "13")),
    "path/size_of_the_script.py": of_text("TIMES = 1\n", "TIMES = 4\n"),
}


def reduction(algorithm, nbytes=2**20):
    return {"collective": [{"name": "all_reduce", "sizes": [nbytes], "algorithms": [algorithm]}]}


STEP = {"profile": [{"name": "p.json"}]}
TRAINING = {"script": [{"file": "train.py", "arguments": "cfg.json", "compute": "none"}]}
PROFILED = {"script": [{"file": "train.py", "arguments": "cfg.json", "compute": "profile:p.json"}]}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with one file of each kind, in which the test runs, and a module elsewhere on the path."""
    (tmp_path / "path").mkdir()
    for name, make in MAKERS.items():
        make(tmp_path / name, False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "path")
    monkeypatch.delitem(sys.modules, "size_of_the_script", raising=False)
    return tmp_path


@pytest.fixture
def worked_out(monkeypatch):
    """The points that were worked out, and not found in a cache."""
    points = []

    def seen(task):
        points.extend(point for point, _ in task.items)
        return evaluate_task(task)

    monkeypatch.setattr("testbed.planning.sweep.evaluate_task", seen)
    return points


def answer(question, cache):
    asked = {"network": [{"name": "net.toml"}], "ranks": [4], "timing": "links", **question}
    rows = plan(asked, cache=cache, explain=False).rows
    assert not [row.problem for row in rows if row.problem]
    return [row.seconds for row in rows]


def change(path, is_slow):
    """Write the file again, at a time that differs however coarse the clock of files is."""
    before = path.stat().st_mtime_ns
    next(make for name, make in MAKERS.items() if path.match(name))(path, is_slow)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@pytest.mark.parametrize(
    ("question", "name"),
    [
        (reduction("ring"), "net.toml"),
        (reduction("auto:table=t.json"), "t.json"),
        (reduction("mine.py:mine"), "mine.py"),
        (reduction("s.json"), "s.json"),
        (STEP, "net.toml"),
        (STEP, "p.json"),
        ({**STEP, "algorithms": ["mine.py:mine"]}, "mine.py"),
        ({**TRAINING, "algorithms": ["mine.py:mine"]}, "mine.py"),
        (TRAINING, "train.py"),
        (TRAINING, "cfg.json"),
        (PROFILED, "p.json"),
    ],
)
def test_a_row_is_worked_out_again_once_a_file_that_was_opened_for_it_has_changed(
    question, name, here, worked_out
):
    cache = here / "cache"
    before = answer(question, cache)
    change(here / name, True)

    after = answer(question, cache)

    assert after == answer(question, "none") != before
    num_points = len(worked_out)
    change(here / name, False)
    assert answer(question, cache) == before  # rows of both contents are known
    assert len(worked_out) == num_points


@pytest.mark.parametrize(
    "compiled", ["mine.cpython-311.pyc", "mine.cpython-311-pytest-9.2.0.pyc", "mine.cpython-311.pyc.140234"]
)
def test_what_a_module_was_compiled_to_counts_as_its_source(compiled, tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "__pycache__" / compiled).write_text("")

    with recording() as recorder, open(tmp_path / "__pycache__" / compiled):
        pass

    files = recorder.files()
    assert [path for path, _ in files.digests] == [str(tmp_path / "mine.py")]


def test_files_that_were_not_opened_for_a_row_do_not_matter_to_it(here, worked_out):
    asked = {"collective": [{"name": "all_reduce", "sizes": [4096], "algorithms": ["ring", "mine.py:mine"]}]}
    answer(asked, here / "cache")
    change(here / "mine.py", True)
    worked_out.clear()

    answer(asked, here / "cache")

    assert [point.algorithm for point in worked_out] == ["mine.py:mine"]


def test_a_module_that_was_imported_for_another_row_is_opened_for_this_one_too(here, worked_out):
    text = (here / "mine.py").read_text()
    (here / "mine.py").write_text(f"import size_of_the_script\n{text}")
    for size in (4096, 8192):
        answer(reduction("mine.py:mine", size), here / "cache")
    assert "size_of_the_script" in sys.modules
    change(here / "path/size_of_the_script.py", True)

    known = Cache(here / "cache").known(as_they_are(worked_out))

    assert len(worked_out) == 2
    assert not known


def test_a_file_that_was_looked_for_in_vain_counts_as_absent(tmp_path):
    wanted = tmp_path / "checkpoint"
    with recording() as opened, suppress(FileNotFoundError):
        wanted.open()
    files = opened.files()
    assert files.hold()

    wanted.touch()

    assert not files.hold()


def test_files_that_were_begun_anew_and_those_of_packages_do_not_count(tmp_path):
    with recording() as opened:
        (tmp_path / "out").write_text("mine")
        (tmp_path / "out").read_text()
        Path(json.__file__).read_text()
        Path(plan.__code__.co_filename).read_text()
        Path("/proc/self/stat").read_text()

    assert opened.files() == Files()


def test_what_has_changed_while_it_was_read_is_not_known(tmp_path):
    file = tmp_path / "counter"
    file.write_text("1")

    with recording() as opened:
        file.write_text(file.read_text() * 2)

    assert opened.files() is None


def test_the_same_names_in_another_folder_are_other_files(here, worked_out, monkeypatch):
    before = answer(reduction("ring"), here / "cache")
    (here / "other").mkdir()
    network(here / "other" / "net.toml", True)
    monkeypatch.chdir(here / "other")

    assert answer(reduction("ring"), here / "cache") != before
