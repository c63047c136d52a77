"""Scripts as the ranks of a run: each rank has its own main module, arguments and modules."""

import sys
import textwrap
from pathlib import Path

import pytest

from collectives.virtual import Module, run
from sim.errors import RankError
from tests.collectives.virtual.clusters import script
from tests.given import switch


def package(folder: Path, **modules: str) -> Path:
    """Write modules, by their names, as a package."""
    folder.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def test_a_script_sees_its_own_main_arguments_and_neighbours(tmp_path):
    (tmp_path / "neighbour_of_the_script.py").write_text("NAME = 'neighbour'\n")
    path = script(
        tmp_path,
        """
        import pickle, sys
        import neighbour_of_the_script

        class Thing:
            pass

        if __name__ == "__main__":
            kind = type(pickle.loads(pickle.dumps(Thing()))) is Thing
            seen = kind, sys.argv[1:], neighbour_of_the_script.NAME, __file__
        """,
    )

    first, second = run(path, network=switch(2), argv=["--fast"]).results

    assert first is not second
    assert first["seen"] == second["seen"] == (True, ["--fast"], "neighbour", str(path))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("def double(number: int): ...\nvalue = double.__annotations__['number']\n", int),
        ("import sys\nvalue = 5\nsys.exit(0)\n", 5),
    ],
    ids=["inherits no future import of ours", "may exit with success"],
)
def test_a_script_has_its_own_rules(tmp_path, text, value):
    assert run(script(tmp_path, text), network=switch(1)).results[0]["value"] == value


def test_a_script_that_does_not_exist_is_an_error_of_its_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.py"):
        run(tmp_path / "missing.py", network=switch(2))


def test_modules_next_to_a_script_are_imported_by_each_rank_for_itself(tmp_path):
    package(
        tmp_path / "own_package",
        __init__="from own_package import part\ncount = 0\n",
        part="""
        import torch.distributed as dist
        dist.init_process_group('gloo')
        dist.barrier()  # ranks wait for each other in the middle of an import
        rank = dist.get_rank()
        """,
    )
    path = script(
        tmp_path,
        """
        import torch.distributed as dist
        import own_package
        from own_package import part

        class Thing:
            pass

        for _ in range(3):
            own_package.count += part.rank + 1
            dist.barrier()
        things = [None] * dist.get_world_size()
        dist.all_gather_object(things, Thing())
        """,
    )

    outcome = run(path, network=switch(3))

    assert [variables["own_package"].count for variables in outcome.results] == [3, 6, 9]
    assert all(
        type(thing) is variables["Thing"] for variables in outcome.results for thing in variables["things"]
    )
    assert not any(name.startswith("own_package") for name in sys.modules)
    assert not any(type(finder).__name__ == "OwnModules" for finder in sys.meta_path)


def test_a_script_can_be_named_as_a_module(tmp_path, monkeypatch):
    trainer = package(
        tmp_path / "trainer",
        model="SIZE = 3",
        train="import sys\nfrom .model import SIZE\nseen = sys.argv, __name__, SIZE",
        __main__="main = True",
    )
    monkeypatch.chdir(tmp_path)

    for variables in run(Module("trainer.train"), network=switch(2), argv=["--fast"]).results:
        assert variables["seen"] == ([str(trainer / "train.py"), "--fast"], "__main__", 3)
    assert run(Module("trainer"), network=switch(1)).results[0]["main"]
    with pytest.raises(ModuleNotFoundError, match="trainerr"):
        run(Module("trainerr"), network=switch(1))
    with pytest.raises(RankError, match=r"trainer\.missing"):
        run(Module("trainer.missing"), network=switch(1))


def test_a_function_of_which_nothing_runs_is_refused_by_name():
    async def coroutine(rank):
        raise AssertionError

    def generator(rank):
        yield rank

    async def both(rank):
        yield rank

    for function in (coroutine, generator, both):
        with pytest.raises(RankError, match=f"{function.__name__} is a .*, of which nothing has run"):
            run(function, network=switch(2))
