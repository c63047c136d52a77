"""A user's own file or folder with the name of a package of ours: nobody else's program stumbles over it."""

import fnmatch
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import _collective_testbed_entry as entry

ROOT = Path(entry.__file__).parent
NAMES = ("collectives", "ddp", "sim", "testbed")
FORMS = {"file": "{0}.py", "package": "{0}/__init__.py", "folder": "{0}/own.py"}

TRAIN = """
import sys
import torch
total = 0
for name in {modules}:
    total += __import__(name, fromlist=["mine"]).mine(3)
print("mine", total)
"""
TEST = """
def test_that_uses_its_own_modules():
    for name in {modules}:
        assert __import__(name, fromlist=["mine"]).mine(3) == 3
"""
ASKING = """
import torch.distributed as dist
try:
    dist.init_process_group("testbed", init_method="file://{folder}/store", rank=0, world_size=1)
except ImportError as error:
    print(error)
"""
CASES = [
    pytest.param(NAMES, "file", marks=pytest.mark.costly, id="all-file"),
    *(
        pytest.param((name,), form, marks=pytest.mark.slow, id=f"{name}-{form}")
        for name in NAMES
        for form in ("file", "package")
    ),
]
"""A folder without ``__init__.py`` gives way to any package that is installed under its name (PEP 420)."""


def a_user_has(folder, names, form):
    """Write the user's own modules, and programs that import them."""
    for name in names:
        own = folder / FORMS[form].format(name)
        own.parent.mkdir(exist_ok=True)
        own.write_text("def mine(x):\n    return x\n")
    modules = [f"{name}.own" if form == "folder" else name for name in names]
    (folder / "train.py").write_text(TRAIN.format(modules=modules))
    (folder / "test_own.py").write_text(TEST.format(modules=modules))
    (folder / "asking.py").write_text(ASKING.format(folder=folder))


def ran(folder, *command, **environment):
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env=variables | environment, capture_output=True, text=True, timeout=100
    )


def command(*arguments):
    """Return what the installed script does, whose folder and not the current one goes first."""
    return [sys.executable, "-P", "-c", "from _collective_testbed_entry import main; main()", *arguments]


def check_all(folder, names, **environment):
    """Check that what a user does beside modules of these names works."""
    total = f"mine {3 * len(names)}\n"

    trained = ran(folder, sys.executable, "train.py", **environment)
    assert trained.stdout == total, trained.stderr

    tested = ran(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", **environment)
    assert "1 passed" in tested.stdout, tested.stdout + tested.stderr

    run = ran(folder, *command("run", "--ranks", "2", "train.py"), **environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(total)

    helped = ran(folder, *command("--help"), **environment)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("Usage: testbed")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("names", "form"), CASES)
def test_torch_pytest_and_the_command_work_beside_modules_of_our_names(tmp_path, names, form):
    a_user_has(tmp_path, names, form)

    check_all(tmp_path, names)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return a folder with what a wheel installs, made of a copy, as the build writes beside its sources."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in (*entry.PACKAGES, "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", Path(entry.__file__).name):
        shutil.copy(ROOT / name, source / name)
    pytest.importorskip("setuptools")
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(site)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=100)
    (built,) = site.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(site)
    return site


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", NAMES)
def test_so_they_do_where_a_wheel_is_installed(tmp_path, wheel, name):
    a_user_has(tmp_path, [name], "file")
    where = [sys.executable, "-P", "-c", "import sim; print(sim.__file__)"]
    assert ran(tmp_path, *where, PYTHONPATH=str(wheel)).stdout.startswith(str(wheel))

    check_all(tmp_path, [name], PYTHONPATH=str(wheel))


def test_where_the_backend_is_asked_for_one_line_names_what_stands_in_its_way(tmp_path):
    a_user_has(tmp_path, ["collectives"], "file")

    asked = ran(tmp_path, sys.executable, "asking.py")

    assert asked.stdout == (
        f"{tmp_path / 'collectives.py'} stands in the way of the package 'collectives' of "
        "collective-testbed: rename it, or keep its folder out of sys.path\n"
    ), asked.stderr


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_what_stands_in_the_way_is_named(tmp_path, monkeypatch, name, form):
    a_user_has(tmp_path, [name], form)
    monkeypatch.delitem(sys.modules, name, raising=False)
    elsewhere = [place for place in sys.path if Path(place).resolve() != ROOT]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *elsewhere])

    with pytest.raises(entry.InTheWayError) as caught:
        entry.require()

    place = tmp_path / (f"{name}.py" if form == "file" else name)
    assert str(caught.value).startswith(f"{place} stands in the way of the package {name!r}")


def test_the_command_says_in_one_line_what_stands_in_its_way(tmp_path):
    a_user_has(tmp_path, ["testbed"], "file")

    refused = ran(tmp_path, *command("--help"), PYTHONPATH=str(tmp_path))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"testbed: error: {tmp_path / 'testbed.py'} stands in the way of")
    assert refused.stderr.count("\n") == 1


ON_RANKS = "from testbed.testing import on_ranks\n"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("testbed", ON_RANKS, "", "if ours is meant: */testbed.py stands*"),
        ("sim", f"{ON_RANKS}@on_ranks(2)\ndef test_it(): pass\n", "", "*InTheWayError: */sim.py stands*"),
        ("sim", "def test_it(virtual_cluster): pass\n", "", "*/sim.py stands in the way*"),
        ("testbed", "", "--testbed-html page.html", "*--testbed-html: */testbed.py stands in the way*"),
    ],
)
def test_pytest_says_what_stands_in_the_way_where_a_test_asks_for_us(tmp_path, name, text, options, said):
    a_user_has(tmp_path, [name], "file")
    (tmp_path / "test_own.py").write_text(text)

    tested = ran(tmp_path, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options.split())

    assert tested.returncode != 0
    assert fnmatch.filter((tested.stdout + tested.stderr).splitlines(), said), tested.stdout


@pytest.mark.costly
@pytest.mark.distributed
def test_a_run_of_processes_starts_beside_our_names_and_says_which_it_cannot_find(tmp_path):
    a_user_has(tmp_path, ["testbed"], "file")
    (tmp_path / "own.py").write_text("import torch; print('ran', flush=True); from testbed import mine\n")

    own = ran(tmp_path, *command("run", "--processes", "1", "own.py"))

    assert (own.returncode, own.stdout) == (1, "ran\n"), own.stderr
    assert f"{tmp_path / 'testbed.py'} has the name of a package of the testbed" in own.stderr
