"""Scripts as Python's command line takes them: in the place of this process's main module, and back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from collectives.torch_backend.script import Module, Script


def test_a_file_is_the_main_module_of_this_process_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    (tmp_path / "neighbour.py").write_text("NAME = 'neighbour'\n")
    path.write_text(
        "import sys\nimport neighbour\n"
        "main, arguments, name = sys.modules['__main__'], sys.argv, neighbour.NAME\n"
    )
    before = sys.modules["__main__"], sys.argv, sys.path

    script = Script(path, ["--fast"])
    with script.as_main() as main:
        left = script.run(main)
    sys.modules.pop("neighbour")

    assert left["main"] is main
    assert left["arguments"] == [str(path), "--fast"]
    assert (left["name"], left["__name__"], left["__file__"]) == ("neighbour", "__main__", str(path))
    assert (sys.modules["__main__"], sys.argv, sys.path) == before


def test_a_module_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainer_module.py").write_text("import sys\narguments = sys.argv\n")
    monkeypatch.chdir(tmp_path)
    script = Script(Module("trainer_module"), ["5"])

    with script.as_main() as main:
        left = script.run(main)

    assert left["arguments"] == [str(tmp_path / "trainer_module.py"), "5"]
    assert left["__spec__"].name == "trainer_module"
    with pytest.raises(ModuleNotFoundError, match="there is no module 'trainer_missing'"):
        Script(Module("trainer_missing"), [])


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("sys.exit('no data')", "no data")])
def test_only_an_exit_that_is_a_failure_comes_out(tmp_path: Path, ending: str, code: object) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nif len(sys.argv) > 1:\n    {ending}\nsys.exit(0)\n")
    well, failing = Script(path, []), Script(path, ["fail"])

    with well.as_main() as main:
        well.run(main)
    with pytest.raises(SystemExit) as caught, failing.as_main() as main:
        failing.run(main)

    assert caught.value.code == code
