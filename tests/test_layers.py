"""The walls of the packages: every folder stands behind one, and imports between rooms run one way."""

import ast
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("collectives", "ddp", "sim", "testbed")
MAX_ROOMS = 18
BOTH = {"collectives.virtual"}  # may know torch and the simulator

with (ROOT / "pyproject.toml").open("rb") as file:
    CONTRACTS = tomllib.load(file)["tool"]["importlinter"]["contracts"]
WALLED = [name for contract in CONTRACTS for name in contract.get("source_modules", ())]


def rooms(package: str) -> set[str]:
    """Return the folders and files at the top of *package*, but for its ``__init__``."""
    folder = ROOT / package
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


def test_contracts_name_folders_and_few():
    assert len(WALLED) <= 24
    assert [name for name in WALLED if not (ROOT / name.replace(".", "/") / "__init__.py").is_file()] == []


@pytest.mark.parametrize("package", ["collectives", "ddp"])
def test_every_folder_is_behind_one_wall(package):
    folders = {f"{package}.{path.parent.name}" for path in (ROOT / package).glob("*/__init__.py")} - BOTH

    assert {name: WALLED.count(name) for name in folders} == dict.fromkeys(folders, 1)


def test_the_whole_simulator_is_behind_a_wall():
    assert "sim" in WALLED


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_few_rooms(package):
    assert len(rooms(package)) <= MAX_ROOMS


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_between_the_rooms_of_a_package_run_one_way(package, graph):
    above = {f"{package}.{room}": set() for room in rooms(package)}
    for name in graph.find_descendants(package):
        importer = ".".join(name.split(".")[:2])
        imported = {".".join(other.split(".")[:2]) for other in graph.find_modules_directly_imported_by(name)}
        above[importer] |= (imported & above.keys()) - {importer}

    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_modules_import_each_other_in_a_circle(graph):
    faces = {name for name in graph.modules if graph.find_children(name)}  # they only hand names on
    modules = graph.modules - faces
    imports = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.costly
def test_a_module_is_introduced_by_a_noun():
    clauses = ("What ", "Which ", "Who ", "Whose ", "How ", "When ", "Where ", "Why ")
    opening = {
        path.relative_to(ROOT): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for package in (*PACKAGES, "benchmarks", "examples", "tests", "tools")
        for path in sorted((ROOT / package).rglob("*.py"))
    }

    assert [str(path) for path, text in opening.items() if text.startswith(clauses)] == []
