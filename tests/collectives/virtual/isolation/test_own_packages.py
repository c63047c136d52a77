"""Packages that keep what a process has once: each rank has a copy, and shared modules use the right one."""

import builtins
import importlib
import importlib.util
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collectives.errors import NotSupportedError
from collectives.virtual import Module, run
from collectives.virtual.isolation import ownership
from collectives.virtual.isolation.shared_state import TEXT
from sim.errors import RankError
from sim.files.named import names_in
from tests.collectives.virtual.clusters import script
from tests.given import switch


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what installs modules, given their texts; they are gone after the test."""
    place = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)

    def install(texts):
        for name, text in texts.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    yield install
    for name in set(sys.modules) - before:
        if str(place) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a script, in which nothing is installed."""
    path = tmp_path / "work"
    path.mkdir()
    return path


STATE = """
import os
import torch.distributed as dist

class State:
    _shared = {}
    def __init__(self):
        self.__dict__ = self._shared
        self._shared.setdefault("rank", int(os.environ["RANK"]))

def rank():
    return State().rank
"""
RANKS = [0, 1, 2]


def seen(folder: Path, text: str, own: Sequence[str] = ()) -> list[Any]:
    """Return what each of three ranks of a script in *folder*, which sees *text*, has seen at its end."""
    joined = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    outcome = run(script(folder, joined + textwrap.dedent(text)), network=switch(3), own=own)
    return [variables["seen"] for variables in outcome.results]


def _in_a_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(place))


def _by_a_finder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the package as an editable installation does."""

    class Finder:
        def find_spec(self, name, path=None, target=None):
            file = place / name / "__init__.py"
            if not file.exists():
                return None
            return importlib.util.spec_from_file_location(
                name, file, submodule_search_locations=[str(file.parent)]
            )

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])


@pytest.mark.parametrize("find", [_in_a_folder, _by_a_finder])
def test_a_package_that_is_not_installed_is_each_ranks_own(find, folder, tmp_path, monkeypatch):
    place = tmp_path / "checkout"
    (place / "beside" / "inner").mkdir(parents=True)
    (place / "beside" / "__init__.py").write_text(STATE)
    (place / "beside" / "inner" / "__init__.py").touch()
    (place / "beside" / "inner" / "numbers.py").write_text("ranks = []\n")
    find(place, monkeypatch)
    text = """
        import beside
        from beside.inner import numbers
        dist.barrier()
        numbers.ranks.append(beside.rank())
        dist.barrier()
        seen = beside.State().rank, numbers.ranks
        """

    assert seen(folder, text) == [(rank, [rank]) for rank in RANKS]
    assert "beside" not in sys.modules


def test_the_package_of_a_script_that_is_named_as_a_module_is_each_ranks_own(installed):
    text = "from tools_of_state import rank\nimport torch.distributed as dist\n"
    text += "dist.init_process_group('gloo')\ndist.barrier()\nseen = rank()\n"
    installed({"tools_of_state/__init__.py": STATE, "tools_of_state/train.py": text})

    outcome = run(Module("tools_of_state.train"), network=switch(3))

    assert [variables["seen"] for variables in outcome.results] == RANKS


def test_each_rank_has_a_package_that_it_owns_and_others_share_what_is_not_named(folder, installed):
    installed({"keeps_state/__init__.py": STATE, "keeps_none.py": "things = []\n"})
    text = """
        import keeps_none, keeps_state
        dist.barrier()
        keeps_none.things.append(keeps_state.rank())
        dist.barrier()
        seen = keeps_state.State().rank, sorted(keeps_none.things)
        """

    alone, shared = seen(folder, text, ["keeps_state"]), seen(folder, text)

    assert alone == [(rank, RANKS) for rank in RANKS]
    assert len({rank for rank, _ in shared}) == 1


KEEPS = {
    "a group": "import torch.distributed as dist\nclass State: pass\n"
    "def rank():\n    State.group = getattr(State, 'group', None) or dist.new_subgroups(1)[0]\n"
    "    return dist.get_global_rank(State.group, 0)\n",
    "a result": "from functools import lru_cache\nimport torch.distributed as dist\n"
    "@lru_cache(maxsize=None)\ndef rank():\n    return dist.get_rank()\n",
    "a global": "import os\n_rank = None\ndef rank():\n    global _rank\n"
    "    _rank = int(os.environ['RANK']) if _rank is None else _rank\n    return _rank\n",
}
KEEPS_NONE = {
    "ranks": "import torch.distributed as dist\ndef rank():\n    return dist.get_rank()\n",
    "results": "from functools import cache\n@cache\ndef squared(number):\n    return number * number\n",
}


@pytest.mark.parametrize("keeps", [*KEEPS, *KEEPS_NONE])
@pytest.mark.parametrize("where", ["elsewhere", "below the script", "imported before"])
def test_an_installed_package_is_each_ranks_own_if_its_text_says_that_it_keeps_ranks(
    folder, tmp_path, installed, keeps, where
):
    deep = f"import torch\n{(KEEPS | KEEPS_NONE)[keeps]}ranks = []\n"
    installed({"parallel/__init__.py": "", "parallel/inner/__init__.py": "", "parallel/inner/ranks.py": deep})
    installed({"parallel_file.py": deep})
    if where == "imported before":
        importlib.import_module("parallel.inner.ranks")
    text = """
        import parallel_file
        from parallel.inner import ranks
        modules = ranks, parallel_file
        for module in modules:
            module.ranks.append(dist.get_rank())
        dist.barrier()
        seen = [sorted(module.ranks) for module in modules]
        """

    found = seen(tmp_path if where == "below the script" else folder, text)

    assert found == [[[rank] if keeps in KEEPS else RANKS] * 2 for rank in RANKS]


REGISTERING = {
    "registry_of_process.py": """
kinds = set()

def register(kind):
    if kind in kinds:
        raise KeyError(f"{kind} already defined")
    kinds.add(kind)
""",
    "registering/__init__.py": "from registering.inner import made_by\n",
    "registering/inner.py": "made_by = None\n", "registering/parts.py": "class Part: pass\n",
}  # fmt: skip
ONCE = """
import os
import registry_of_process
from registering.parts import Part

registry_of_process.register("a kind")
made_by = os.environ["RANK"]
"""


@pytest.mark.parametrize("where", ["registering/__init__.py", "registering/inner.py"])
def test_an_installed_package_that_cannot_be_imported_again_is_the_first_ranks(folder, installed, where):
    installed({**REGISTERING, where: ONCE})
    text = """
        import registering
        from registering.parts import Part
        seen = registering.made_by, isinstance(Part(), registering.parts.Part)
        """

    assert seen(folder, text, ["registering"]) == [("0", True)] * 3


def test_names_that_a_shared_module_took_from_an_owned_one_are_each_ranks(folder, installed):
    deep = "from keeps_state.state import State\nimport keeps_state.state as module\n"
    deep += "def where():\n    return State().rank, module.rank()\n"
    installed({"keeps_state/__init__.py": "", "keeps_state/state.py": STATE})
    installed({"borrows/__init__.py": "from borrows.deep import where\n", "borrows/deep.py": deep})
    text = """
        if dist.get_rank() == 0:
            import borrows  # the others find it there already
        dist.barrier()
        import borrows
        for _ in range(2):
            dist.barrier()
            where = borrows.where()
        seen = where, id(borrows.deep)
        """

    found = seen(folder, text, ["keeps_state"])

    assert [where for where, _ in found] == [(rank, rank) for rank in RANKS]
    assert len({module for _, module in found}) == 1
    assert sys.modules["borrows.deep"].State is sys.modules["keeps_state.state"].State  # of this process


def test_each_rank_replaces_a_function_of_a_shared_module_for_itself(folder, installed):
    replacing = "import library\nfirst = library.opened\nlibrary.opened = lambda: [*first(), rank()]\n"
    installed({"library.py": "def opened():\n    return []\n", "keeps_state.py": STATE + replacing})
    installed({"uses_library.py": "import library\nboth = lambda: library.opened() * 2\n"})
    text = """
        import keeps_state
        dist.barrier()
        import library, uses_library
        dist.barrier()
        seen = library.opened(), uses_library.both()
        """

    assert seen(folder, text, ["keeps_state"]) == [([rank], [rank] * 2) for rank in RANKS]


@pytest.mark.parametrize("is_taken_back", [False, True])
@pytest.mark.parametrize("module", ["keeps_state.py", "keeps_state/__init__.py", "keeps_state/inner.py"])
def test_names_are_each_ranks_where_the_script_adds_the_folder_of_the_module(
    is_taken_back, module, folder, tmp_path, installed
):
    name = "keeps_state.inner" if "inner" in module else "keeps_state"
    installed({"borrows.py": f"from {name} import rank\n"})
    added = tmp_path / "added" / module
    added.parent.mkdir(parents=True)
    added.write_text(STATE + "from helps_it import HELP\n")
    (tmp_path / "added" / "helps_it.py").write_text("HELP = []\n")
    text = f"""
        import sys
        before, added = list(sys.path), [{str(tmp_path / "added")!r}, *sys.path]
        if dist.get_rank() == 0:
            sys.path = added
            import borrows
            sys.path = before if {is_taken_back} else added
        dist.barrier()
        sys.path = added
        import borrows
        sys.path = before if {is_taken_back} else added
        dist.barrier()
        seen = borrows.rank()
        """

    assert seen(folder, text) == RANKS


LENDS_TO_ONE = {
    "name": "if rank() == 0:\n    lent = lambda: 0\n",
    "module": "if rank() != 0:\n    raise RuntimeError('for the first rank')\nlent = rank\n",
}


@pytest.mark.parametrize("what", LENDS_TO_ONE)
def test_a_rank_goes_on_without_what_only_another_can_import(what, folder, installed):
    installed({"borrows.py": "from beside import lent\n"})
    (folder / "beside.py").write_text(STATE + LENDS_TO_ONE[what])
    text = """
        if dist.get_rank() == 0:
            import borrows
        dist.barrier()
        seen = dist.get_rank()
        """

    assert seen(folder, text) == RANKS


BUILDS = {
    "derives": "class Here(State): pass\n",
    "default": "def here(state=State): return state()\nHere = here\n",
    "table": "KNOWN = {'state': State}\nHere = lambda: KNOWN['state']()\n",
    "instance": "ONE = State()\nHere = lambda: ONE\n",
}


@pytest.mark.parametrize("how", BUILDS)
def test_a_module_that_builds_on_an_owned_one_is_each_ranks_too(folder, installed, how):
    installed({"keeps_state/__init__.py": STATE, "builds/__init__.py": "from builds.part import Here\n"})
    installed({"builds/part.py": f"from keeps_state import State\n{BUILDS[how]}"})

    text = "import builds\ndist.barrier()\nseen = builds.Here().rank\n"
    assert seen(folder, text, ["keeps_state"]) == RANKS


@pytest.mark.parametrize("name", ["keeps_state", "edited"])
def test_modules_of_this_process_stay_and_ranks_find_none_of_their_state(installed, name):
    """Also a shared one whose file cannot be read any more."""
    installed({"keeps_state/__init__.py": STATE, "edited.py": "from keeps_state import State\n"})
    module = importlib.import_module(name)
    installed({"edited.py": "def half("})

    def work(rank):
        import keeps_state

        return keeps_state.rank(), keeps_state is module

    assert run(work, network=switch(2), own=["keeps_state"]).results == [(0, False), (1, False)]
    assert sys.modules[name] is module
    assert module.State._shared == {}


def test_a_file_beside_the_script_that_is_called_as_a_package_of_ours_is_the_scripts(folder):
    for name in ("ddp", "sim", "collectives"):
        (folder / f"{name}.py").write_text("WHO = 'the user'\n")
    text = """
        import torch
        import collectives, ddp, sim
        dist.barrier()
        seen = ddp.WHO, sim.WHO, collectives.WHO
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        model(torch.ones(1)).backward()
        """
    before, find = dict(sys.modules), builtins.__import__

    assert seen(folder, text) == [("the user",) * 3] * 3
    assert all(sys.modules[name] is before[name] for name in ("collectives", "sim"))
    assert importlib.import_module("ddp").DistributedDataParallel
    assert "dgx-h100" in names_in("presets")
    assert "resnet50" in importlib.import_module("ddp.profiles.profile").bundled_profiles()
    assert builtins.__import__ is find


@pytest.mark.parametrize("name", ["torch", "sim", "no_such_package", "a-b"])
def test_what_cannot_be_copied_is_refused_by_name(name):
    with pytest.raises(NotSupportedError, match=name):
        run(lambda rank: None, network=switch(1), own=[name])


def test_known_packages_are_such_that_can_be_copied():
    assert not {name.partition(".")[0] for name in ownership.KEPT_APART} & {"torch", *ownership.OURS}


PARALLEL_STATE = """
import os
import torch.distributed as dist

_GROUP = None
DEFAULT_RANK = 1

class Settings:
    rank: int = 1

make_group = dist.new_group

def initialize():
    globals()["_GROUP"] = make_group([int(os.environ["RANK"])], use_local_synchronization=True)

def only_zero(function):
    only_zero.rank = int(os.environ["RANK"])
"""


@pytest.mark.parametrize(
    ("does", "named"),
    [
        ("initialize()", "a process group in parallel_library.state._GROUP"),
        ("only_zero(print)", "a rank in parallel_library.state.only_zero.rank"),
    ],
)
def test_a_shared_package_that_keeps_what_one_rank_has_is_named_also_where_the_run_fails(
    installed, folder, does, named
):
    installed({"parallel_library/__init__.py": "", "parallel_library/state.py": PARALLEL_STATE})
    installed({"plain_library.py": PARALLEL_STATE})
    text = f"import plain_library\nfrom parallel_library import state\nstate.{does}\nseen = None\n"
    path = script(folder, f"import torch.distributed as dist\ndist.init_process_group('gloo')\n{text}")
    said = f"{TEXT}: parallel_library ({named})"

    shared = run(path, network=switch(3)).report.notices
    apart = run(path, network=switch(3), own=["parallel_library"]).report.notices
    with pytest.raises(RankError) as caught:
        seen(folder, f"{text}dist.barrier()\nraise ValueError('what comes of it')\n")

    assert (shared, apart) == ((said,), ())
    assert f"note: {said}" in caught.value.__notes__
