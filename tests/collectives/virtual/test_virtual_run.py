"""Functions and scripts as ranks in virtual time: repeatable, separate, and gone without a trace."""

import importlib
import inspect
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.cuda.nccl
import torch.distributed as dist
import torch.distributed.device_mesh
import torch.distributed.distributed_c10d as c10d
import torch.distributed.rpc
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.errors import UnknownAlgorithmError
from collectives.virtual import Module, run_virtual
from sim.cluster import Cluster
from sim.errors import DeadlockError, RankError
from sim.topology import Topology
from sim.topology.description import load_network
from sim.trace import Trace


def switch(num_ranks):
    return Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def all_reduce_once(rank):
    dist.init_process_group("gloo")
    tensor = torch.full((400,), float(rank))
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_a_ring_takes_the_time_of_its_closed_form():
    run = run_virtual(all_reduce_once, switch(4))

    assert run.results == [6.0] * 4
    assert set(run.times_ps) == {
        2 * 3 * (2 * 2_000_000 + 400 * 80)
    }  # 2(p-1)(α + β·n/p), 400 B chunks at 12.5 GB/s
    assert run.seconds == run.times_ps[0] / 1e12


def test_a_group_on_the_tree_takes_another_time_and_gives_the_same():
    ring, tree = (run_virtual(all_reduce_once, switch(4), algorithm=name) for name in ("ring", "tree"))

    assert ring.results == tree.results
    assert ring.seconds != tree.seconds


def test_an_unknown_algorithm_is_refused_before_anything_runs():
    with pytest.raises(UnknownAlgorithmError, match="ring"):
        run_virtual(all_reduce_once, switch(2), algorithm="rign")


@given(
    world_size=st.integers(1, 5),
    numel=st.integers(0, 40),
    charges=st.lists(st.integers(0, 10**7), min_size=5, max_size=5),
)
@settings(max_examples=25)
def test_runs_repeat_bit_for_bit_and_picosecond_for_picosecond(world_size, numel, charges):
    def work(rank):
        dist.init_process_group()
        torch.manual_seed(rank)
        tensor = torch.randn(numel)
        Cluster.current().charge_ps(charges[rank])
        handle = dist.all_reduce(tensor, async_op=True)
        gathered = [torch.empty(3) for _ in range(world_size)]
        dist.all_gather(gathered, torch.rand(3))
        handle.wait()
        return [tensor.tolist(), [part.tolist() for part in gathered], random.random()]

    first, second = (run_virtual(work, switch(world_size)) for _ in range(2))

    assert first.results == second.results
    assert first.times_ps == second.times_ps
    assert all(result[:2] == first.results[0][:2] for result in first.results)


def test_each_rank_finds_what_torchrun_would_have_set():
    names = ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"]
    topology = Topology.nodes(
        num_nodes=2,
        ranks_per_node=2,
        intra_bandwidth="300GB/s",
        intra_latency="500ns",
        nics_per_node=2,
        nic_bandwidth="25GB/s",
        nic_latency="2us",
    )

    run = run_virtual(lambda rank: [int(os.environ[name]) for name in names], topology)

    assert run.results == [[0, 0, 0, 4, 2, 2], [1, 1, 0, 4, 2, 2], [2, 0, 1, 4, 2, 2], [3, 1, 1, 4, 2, 2]]


def test_ranks_of_a_node_that_is_not_full_are_told_how_many_they_are():
    topology = load_network("dgx-h100").topology(10)

    run = run_virtual(lambda rank: os.environ["LOCAL_WORLD_SIZE"], topology)

    assert run.results == ["8"] * 8 + ["2"] * 2


def test_what_a_process_has_once_every_rank_has_for_itself():
    def work(rank):
        dist.init_process_group("gloo")
        torch.manual_seed(rank)
        np.random.seed(rank)
        random.seed(rank)
        os.environ["MINE"] = str(rank)
        if rank == 1:
            torch.set_default_dtype(torch.float64)
        seen = []
        for _ in range(3):
            dist.barrier()
            seen.append((torch.rand(1).item(), np.random.rand(), random.random(), os.environ["MINE"]))
            assert dist.get_rank() == rank
        return seen, torch.empty(1).dtype

    run = run_virtual(work, switch(3))

    for rank, (seen, dtype) in enumerate(run.results):
        generator = torch.Generator().manual_seed(rank)
        assert dtype == (torch.float64 if rank == 1 else torch.float32)
        assert [value for value, *_ in seen] == [
            torch.rand(1, dtype=dtype, generator=generator).item() for _ in range(3)
        ]
        assert [value for _, value, *_ in seen] == list(np.random.RandomState(rank).rand(3))
        one = random.Random(rank)
        assert [value for _, _, value, _ in seen] == [one.random() for _ in range(3)]
        assert {value for *_, value in seen} == {str(rank)}


def state_of_the_process():
    """What a run might leave changed, in a form that can be compared."""
    return {
        "environment": dict(os.environ),
        "directory": Path.cwd(),
        "path": list(sys.path),
        "argv": list(sys.argv),
        "main": sys.modules["__main__"],
        "hook": sys.excepthook,
        "warnings": list(warnings.filters),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "torch": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy": np.random.get_state(legacy=False)["state"]["key"].tolist(),
        "world": c10d._world,
        "groups": dict(c10d._pg_map),
        "rendezvous": c10d.rendezvous,
        "new group": c10d._new_process_group_helper,
        "split": (c10d.split_group, dist.split_group, torch.distributed.device_mesh.split_group),
        "nccl": (torch.cuda.nccl.version, getattr(c10d, "default_pg_nccl_timeout", None)),
        "stores": (dist.TCPStore, dist.FileStore),
        "remote calls": torch.distributed.rpc.init_rpc,
        "profiler": (torch.autograd.profiler._prepare_profiler, torch.autograd.profiler._disable_profiler),
        "signals": signal.signal,
        "default group": c10d._WorldMeta.WORLD,
        "future": torch._C.Future.wait,
        "hook in C++": torch.nn.parallel.DistributedDataParallel._register_builtin_comm_hook,
        "initialized": dist.is_initialized(),
    }


@pytest.mark.parametrize(
    "ending", ["pass", "raise ValueError", "sys.exit(3)", "dist.barrier() if rank else None"]
)
def test_nothing_that_was_changed_stays_changed(tmp_path, monkeypatch, ending):
    monkeypatch.setenv("KEPT", "as it was")
    path = script(
        tmp_path,
        f"""
        import os, random, sys
        import numpy, torch, torch.distributed as dist
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        os.environ["KEPT"] = "changed"
        os.environ["NEW"] = "variable"
        os.chdir({str(tmp_path)!r})
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.manual_seed(7); random.seed(7); numpy.random.seed(7)
        sys.argv.append("more"); sys.path.append("more")
        dist.barrier()
        {ending}
        """,
    )
    before = state_of_the_process()

    if ending == "pass":
        run_virtual(path, switch(2))
    else:
        with pytest.raises((RankError, DeadlockError)):
            run_virtual(path, switch(2))

    assert state_of_the_process() == before
    inherited = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "KEPT=as it was" in inherited
    assert not any(line.startswith(("NEW=", "RANK=")) for line in inherited)
    assert run_virtual(all_reduce_once, switch(2)).results == [1.0, 1.0]


def test_a_process_group_of_the_process_itself_is_neither_seen_nor_harmed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ranks = run_virtual(all_reduce_once, switch(4)).results
        own = torch.ones(1)
        dist.all_reduce(own)
        world_size = dist.get_world_size()
    finally:
        dist.destroy_process_group()

    assert ranks == [6.0] * 4
    assert (own.item(), world_size) == (1.0, 1)


def test_warning_filters_of_ranks_that_wait_inside_them_do_not_mix():
    def work(rank):
        dist.init_process_group()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if rank else "error")
            dist.barrier()
            if rank:
                warnings.warn("ignored", UserWarning, stacklevel=1)
            else:
                with pytest.raises(UserWarning):
                    warnings.warn("an error", UserWarning, stacklevel=1)

    before = list(warnings.filters)

    run_virtual(work, switch(3))

    assert list(warnings.filters) == before


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
            thing = pickle.loads(pickle.dumps(Thing()))
            kind = type(thing) is Thing
            arguments = sys.argv[1:]
            neighbour = neighbour_of_the_script.NAME
            file = __file__
        """,
    )

    run = run_virtual(path, switch(2), argv=["--fast"])

    assert run.results[0] is not run.results[1]
    for variables in run.results:
        assert variables["kind"]
        assert variables["arguments"] == ["--fast"]
        assert variables["neighbour"] == "neighbour"
        assert variables["file"] == str(path)


def test_a_script_inherits_no_future_import_of_ours(tmp_path):
    path = script(tmp_path, "def double(number: int): ...\nkind = double.__annotations__['number']\n")

    assert run_virtual(path, switch(1)).results[0]["kind"] is int


def test_a_script_may_end_by_exiting_with_success(tmp_path):
    path = script(tmp_path, "import sys\nvalue = 5\nsys.exit(0)\n")

    assert run_virtual(path, switch(1)).results[0]["value"] == 5


def test_a_script_that_does_not_exist_is_an_error_of_its_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.py"):
        run_virtual(tmp_path / "missing.py", switch(2))


def test_an_error_inside_a_rank_shows_that_ranks_traceback(tmp_path):
    path = script(
        tmp_path,
        """
        import torch.distributed as dist
        dist.init_process_group()

        def part_of_the_script():
            raise ValueError("bad label")

        if dist.get_rank() == 2:
            part_of_the_script()
        dist.barrier()
        """,
    )

    with pytest.raises(RankError, match="rank 2 raised ValueError: bad label") as caught:
        run_virtual(path, switch(4))

    shown = "".join(traceback.format_exception(caught.value))
    assert "part_of_the_script" in shown
    assert 'raise ValueError("bad label")' in shown


def test_a_rank_that_ends_early_is_reported_with_who_waits_for_it_in_what():
    def work(rank):
        dist.init_process_group()
        if rank != 1:
            dist.all_reduce(torch.ones(8))

    with pytest.raises(DeadlockError) as caught:
        run_virtual(work, switch(4))

    text = str(caught.value)
    assert "3 of 4 ranks" in text
    assert "rank 1: has finished" in text
    assert "all_reduce #0 (ring" in text
    assert (
        "rank 2: waits since 0 ps for all_reduce #0 (ring, 8 × float32, sum): waits for rank 1 to call"
        in text
    )


class HookError(Exception):
    pass


def test_an_error_in_a_backward_hook_unwinds_ranks_that_wait_inside_their_backward_pass():
    def fail(parameter):
        raise HookError

    def work(rank):
        dist.init_process_group()
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        if rank == 2:
            model[0].weight.register_post_accumulate_grad_hook(fail)
        ddp(torch.ones(1, 8)).sum().backward()

    with pytest.raises(RankError, match="rank 2 raised HookError") as caught:
        run_virtual(work, switch(3))

    assert isinstance(caught.value.__cause__, HookError)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_a_deadlock_inside_a_backward_pass_is_found_and_unwound():
    def work(rank):
        dist.init_process_group()
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        for _ in range(3 if rank else 2):
            ddp(torch.ones(1, 8)).sum().backward()

    with pytest.raises(DeadlockError, match="rank 0: has finished"):
        run_virtual(work, switch(3))

    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_ranks_that_call_different_collectives_are_reported_with_their_calls():
    def work(rank):
        dist.init_process_group()
        dist.all_reduce(torch.ones(8 if rank else 9))

    with pytest.raises(DeadlockError) as caught:
        run_virtual(work, switch(3))

    assert "9 × float32" in str(caught.value)
    assert "8 × float32" in str(caught.value)


def test_a_key_of_the_store_that_nobody_sets_is_a_deadlock():
    def work(rank):
        dist.init_process_group()
        c10d._get_default_store().get("a key")

    with pytest.raises(DeadlockError, match="a key"):
        run_virtual(work, switch(2))


def test_handlers_of_signals_are_left_out_and_a_notice_says_so():
    before = signal.getsignal(signal.SIGTERM)

    run = run_virtual(lambda rank: signal.signal(signal.SIGTERM, lambda *received: None), switch(2))

    assert run.results == [before] * 2
    assert signal.getsignal(signal.SIGTERM) is before
    assert any("signals go to the run" in text and "SIGTERM" in text for text in run.report.notices)


def test_a_store_that_the_script_makes_is_one_for_all_ranks(tmp_path):
    def work(rank):
        stores = [
            dist.TCPStore("localhost", 29501, 3, rank == 0),
            dist.TCPStore(host_name="localhost", port=29502, is_master=rank == 0),
            dist.FileStore(str(tmp_path / "file"), 3),
        ]
        dist.init_process_group("gloo", store=stores[0], rank=rank, world_size=3)
        for number, store in enumerate(stores):
            store.set(f"key {rank}", f"{number} of {rank}")
        return [store.get(f"key {(rank + 1) % 3}").decode() for store in stores]

    results = run_virtual(work, switch(3)).results

    assert results == [[f"{number} of {(rank + 1) % 3}" for number in range(3)] for rank in range(3)]
    assert not list(tmp_path.iterdir())
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert type(store) is dist.TCPStore


def test_a_module_of_torch_that_a_rank_imports_does_not_keep_its_group(monkeypatch):
    name = "torch.distributed.fsdp.sharded_grad_scaler"
    monkeypatch.delitem(sys.modules, name, raising=False)

    def work(rank):
        dist.init_process_group()
        scaler = importlib.import_module(name).ShardedGradScaler
        return inspect.signature(scaler).parameters["process_group"].default, dist.group.WORLD.rank()

    assert run_virtual(work, switch(2)).results == [(None, 0), (None, 1)]


def test_waiting_for_a_key_of_the_store_takes_until_it_is_set():
    def work(rank):
        dist.init_process_group()
        store = c10d._get_default_store()
        if rank == 0:
            Cluster.current().charge_ps(12_345)
            store.set("key", "value")
            return store.add("count", 1), store.add("count", 2)
        return store.get("key"), Cluster.current().now_ps(), store.check(["key"]), store.check(["other"])

    assert run_virtual(work, switch(2)).results == [(1, 3), (b"value", 12_345, True, False)]


def test_a_trace_holds_what_was_charged_and_every_collective():
    trace = Trace()

    def work(rank):
        dist.init_process_group()
        Cluster.current().charge("forward")
        dist.all_reduce(torch.ones(8))

    run = run_virtual(work, switch(2), compute={"forward": 1000}, trace=trace)

    assert [(span.rank, span.lane, span.start_ps, span.end_ps) for span in trace.spans] == [
        (0, "compute", 0, 1000),
        (1, "compute", 0, 1000),
        (0, "communication", 1000, run.times_ps[0]),
        (1, "communication", 1000, run.times_ps[1]),
    ]


def test_modules_next_to_a_script_are_imported_by_each_rank_for_itself(tmp_path):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("from own_package import part\ncount = 0\n")
    (package / "part.py").write_text(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"  # ranks wait for each other in the middle of an import
        "dist.barrier()\n"
        "rank = dist.get_rank()\n"
    )
    path = script(
        tmp_path,
        """
        import pickle
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

    run = run_virtual(path, switch(3))

    assert [variables["own_package"].count for variables in run.results] == [3, 6, 9]
    assert all(
        type(thing) is variables["Thing"] for variables in run.results for thing in variables["things"]
    )
    assert not any(name.startswith("own_package") for name in sys.modules)
    assert not any(type(finder).__name__ == "OwnModules" for finder in sys.meta_path)


def test_a_script_can_be_named_as_a_module(tmp_path, monkeypatch):
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("SIZE = 3\n")
    (package / "train.py").write_text(
        "import sys\nfrom .model import SIZE\narguments = sys.argv\nname = __name__\n"
    )
    (package / "__main__.py").write_text("main = True\n")
    monkeypatch.chdir(tmp_path)

    for variables in run_virtual(Module("trainer.train"), switch(2), argv=["--fast"]).results:
        assert variables["arguments"] == [str(package / "train.py"), "--fast"]
        assert (variables["name"], variables["SIZE"]) == ("__main__", 3)
    assert run_virtual(Module("trainer"), switch(1)).results[0]["main"]
    with pytest.raises(ModuleNotFoundError, match="trainerr"):
        run_virtual(Module("trainerr"), switch(1))
    with pytest.raises(RankError, match=r"trainer\.missing"):
        run_virtual(Module("trainer.missing"), switch(1))
