"""Groups: the store that they meet in, options, and the scripts that make them."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._C._distributed_c10d import HashStore

from collectives.errors import CollectiveTimeoutError
from collectives.torch_backend import create
from collectives.torch_backend.fresh_store import fresh_store
from collectives.torch_backend.nccl_options import NCCLOptions, NoNCCL, is_of_nccl
from collectives.torch_backend.script import Module, Script
from collectives.virtual import run
from tests.given import switch


def meet(store, world_size: int, seconds: float = 20.0, without: int | None = None) -> dict[int, Any]:
    """Return what each rank gets, a store or an error; *without* never comes."""
    found = {}

    def come(rank):
        try:
            found[rank] = fresh_store(store, rank, world_size, seconds)
        except CollectiveTimeoutError as error:
            found[rank] = error

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(world_size) if rank != without]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 4))
def test_whatever_earlier_lives_have_left_ranks_meet_in_a_part_that_is_new(world_size, lives, dead):
    store = HashStore()
    for life in range(lives):
        stores = meet(store, world_size)
        assert not any(own.check([f"here/{rank}"]) for own in stores.values() for rank in stores)
        for rank, own in stores.items():
            own.set(f"here/{rank}", str(life))
        assert all(stores[0].check([f"here/{rank}"]) for rank in stores)
    store.set(f"word/{1 + dead % (world_size - 1)}", "of a process that has died")

    last = meet(store, world_size)

    assert not last[0].check(["here/0"])


def test_a_rank_that_never_comes_is_named():
    found = meet(HashStore(), 3, seconds=0.3, without=2)

    assert "rank 2 did not come" in str(found[0])


def test_a_rank_that_is_alone_has_nobody_to_agree_with():
    store = HashStore()

    assert fresh_store(store, 0, 1, 1.0) is store


def test_a_group_on_rank_threads_takes_them_and_shows_them():
    def work(rank):
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options.config.min_ctas, options.config.cga_cluster_size = 4, 2
        dist.init_process_group("nccl", pg_options=options)
        group = dist.new_group(backend="nccl", pg_options=dist.ProcessGroupNCCL.Options())
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        shown = dist.group.WORLD._get_backend(torch.device("cuda")).options
        return tensor.item(), shown.config.min_ctas, group.options.is_high_priority_stream

    assert run(work, network=switch(2)).results == [(2.0, 4, False)] * 2


def test_a_group_between_processes_takes_them_and_no_others():
    options = NoNCCL.Options()
    options.config.max_ctas = 8
    store = dist.HashStore()
    place = SimpleNamespace(
        group_id="alone", group_rank=0, group_size=1, global_ranks_in_group=[0], store=store
    )
    place.timeout = dist.constants.default_pg_timeout

    group = create(place, options)

    assert group.options is options
    with pytest.raises(TypeError, match=r"a TestbedOptions or ProcessGroupNCCL\.Options, got dict"):
        create(place, {"is_high_priority_stream": True})


def test_those_in_place_of_nccls_have_its_fields_and_no_others():
    options = NCCLOptions(is_high_priority_stream=True)

    assert is_of_nccl(options)
    assert options.config.min_ctas == -(2**31)
    with pytest.raises(AttributeError):
        options.config.min_cta = 4


def test_a_file_is_the_main_module_of_this_process_while_it_runs(tmp_path):
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


def test_a_module_is_found_in_the_current_folder(tmp_path, monkeypatch):
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
def test_only_an_exit_that_is_a_failure_comes_out(tmp_path, ending, code):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nif len(sys.argv) > 1:\n    {ending}\nsys.exit(0)\n")
    well, failing = Script(path, []), Script(path, ["fail"])

    with well.as_main() as main:
        well.run(main)
    with pytest.raises(SystemExit) as caught, failing.as_main() as main:
        failing.run(main)

    assert caught.value.code == code
