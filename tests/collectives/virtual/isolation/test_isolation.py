"""Isolation of ranks: separate from each other, and gone from the process without a trace."""

import builtins
import contextlib
import gc
import importlib
import inspect
import io
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
import torch.cuda.nccl
import torch.distributed as dist
import torch.distributed.device_mesh
import torch.distributed.rpc
import torch.multiprocessing

from collectives.errors import NotSupportedError
from collectives.virtual import run
from sim.errors import RankError
from tests.collectives.virtual.clusters import all_reduce_once, in_group, script
from tests.given import nodes, switch


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (nodes(2, 2, 2), [[0, 0, 0, 4, 2, 2], [1, 1, 0, 4, 2, 2], [2, 0, 1, 4, 2, 2], [3, 1, 1, 4, 2, 2]]),
        (nodes(2, 3, num_ranks=4),
         [[0, 0, 0, 4, 3, 2], [1, 1, 0, 4, 3, 2], [2, 2, 0, 4, 3, 2], [3, 0, 1, 4, 1, 2]]),
    ],
    ids=["full nodes", "a last node that is not full"],
)  # fmt: skip
def test_each_rank_finds_what_torchrun_would_have_set(topology, expected):
    names = ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"]

    def work(rank):
        assert [int(os.environb[name.encode()]) for name in names] == expected[rank]
        return [int(os.environ[name]) for name in names]

    assert run(work, network=topology).results == expected


def test_a_process_that_froze_the_flags_of_torchs_backends_can_run_ranks():
    flags = torch.backends.disable_global_flags.__globals__
    name = "__allow_nonbracketed_mutation_flag"
    before = flags[name]
    try:
        run(lambda rank: torch.backends.disable_global_flags(), network=switch(2))
        assert flags[name] == before

        torch.backends.disable_global_flags()
        assert run(lambda rank: rank, network=switch(2)).results == [0, 1]
        assert torch.backends.flags_frozen()
    finally:
        flags[name] = before


def test_a_process_group_of_the_process_itself_is_neither_seen_nor_harmed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ranks = run(all_reduce_once, network=switch(4)).results
        own = torch.ones(1)
        dist.all_reduce(own)
        world_size = dist.get_world_size()
    finally:
        dist.destroy_process_group()

    assert ranks == [6.0] * 4
    assert (own.item(), world_size) == (1.0, 1)


@pytest.mark.parametrize("spell", [np.array, tuple, set, dict.fromkeys, lambda ranks: list(np.array(ranks))])
def test_ranks_of_a_new_group_may_be_given_as_anything_that_holds_integers(spell):
    def script(rank):
        dist.init_process_group("gloo")
        own = [dist.new_group(spell(ranks)) for ranks in ([0, 1], [2, 3])][rank // 2]
        total = torch.tensor([rank])
        dist.all_reduce(total, group=own)
        return total.item(), dist.get_process_group_ranks(own)

    assert run(script, network=switch(4)).results == [(1, [0, 1])] * 2 + [(5, [2, 3])] * 2


def test_warning_filters_of_ranks_that_wait_inside_them_do_not_mix():
    def work(rank):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if rank else "error")
            dist.barrier()
            if rank:
                warnings.warn("ignored", UserWarning, stacklevel=1)
            else:
                with pytest.raises(UserWarning):
                    warnings.warn("an error", UserWarning, stacklevel=1)

    before = list(warnings.filters)

    in_group(work, 3)

    assert list(warnings.filters) == before


LOGGER = logging.getLogger("tests.of.a.rank")


def state_of_logging():
    return list(logging.root.handlers), logging.root.level, LOGGER.level, LOGGER.isEnabledFor(logging.DEBUG)


def test_each_rank_configures_logging_for_itself():
    outputs = [io.StringIO() for _ in range(3)]

    def work(rank):
        logging.root.handlers = []
        level = logging.WARNING if rank == 1 else logging.INFO
        logging.basicConfig(format=f"{rank}: %(message)s", level=level, stream=outputs[rank])
        made = logging.getLogger("tests.made.by.a.rank")
        dist.barrier()
        LOGGER.info("begins")
        made.setLevel(10 + rank)
        dist.barrier()
        LOGGER.setLevel(logging.DEBUG if rank == 2 else logging.ERROR)
        dist.barrier()
        LOGGER.debug("ends")
        return LOGGER.level, len(logging.root.handlers), made.level

    before = state_of_logging()

    results = in_group(work, 3).results

    assert results == [(logging.ERROR, 1, 10), (logging.ERROR, 1, 11), (logging.DEBUG, 1, 12)]
    assert [output.getvalue() for output in outputs] == ["0: begins\n", "", "2: begins\n2: ends\n"]
    assert state_of_logging() == before
    assert not any(name in vars(logging.Logger) for name in ("level", "handlers", "propagate"))
    made = logging.getLogger("tests.made.by.a.rank")  # is there for all, and afterwards
    assert (made.level, made.handlers, made.propagate) == (logging.NOTSET, [], True)


def test_handlers_of_signals_are_left_out_and_a_notice_says_so():
    before = signal.getsignal(signal.SIGTERM)

    outcome = run(lambda rank: signal.signal(signal.SIGTERM, lambda *received: None), network=switch(2))

    assert outcome.results == [before] * 2
    assert signal.getsignal(signal.SIGTERM) is before
    assert any("signals go to the run" in text and "SIGTERM" in text for text in outcome.report.notices)


def test_a_module_of_torch_that_a_rank_imports_does_not_keep_its_group(monkeypatch):
    name = "torch.distributed.fsdp.sharded_grad_scaler"
    monkeypatch.delitem(sys.modules, name, raising=False)

    def work(rank):
        dist.init_process_group()
        scaler = importlib.import_module(name).ShardedGradScaler
        return inspect.signature(scaler).parameters["process_group"].default, dist.group.WORLD.rank()

    assert run(work, network=switch(2)).results == [(None, 0), (None, 1)]


def test_a_model_that_is_kept_alone_of_a_run_can_be_called(tmp_path):
    path = script(
        tmp_path,
        """
        import torch
        from torch.nn import functional

        class Model(torch.nn.Linear):
            def forward(self, x):
                return functional.relu(super().forward(x)) * scale

        model, scale = Model(8, 8), 2
        losses = [model(torch.ones(2, 8)).sum()]
        """,
    )

    model = run(path, network=switch(2)).results[0]["model"]
    gc.collect()

    assert model(torch.ones(2, 8)).shape == (2, 8)


@pytest.mark.parametrize("ending", ["", "raise ValueError(model)"])
def test_models_of_a_script_end_with_the_run(tmp_path, ending):
    """Neither what torch keeps of FSDP2 for the process keeps them, nor the graph of a loss that is left."""
    path = script(
        tmp_path,
        f"""
        import weakref
        from builtins import made
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        class Model(torch.nn.Linear):
            def forward(self, x):
                assert self in list(model)
                return super().forward(x)

        dist.init_process_group("gloo")
        model = torch.nn.Sequential(Model(8, 8), Model(8, 8))
        made.append(weakref.ref(model))
        for module in (*model, model):
            fully_shard(module)
        for _ in range(2):
            loss = model(torch.ones(2, 8)).sum()
            loss.backward()
        {ending}
        """,
    )
    made = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "made", made, raising=False)
        with pytest.raises(RankError) if ending else contextlib.nullcontext():
            run(path, network=switch(2))
    gc.collect()  # the error, and with it the globals
    gc.collect()

    assert len(made) == 2
    assert [reference() for reference in made] == [None, None]


@pytest.mark.costly
def test_workers_of_a_data_loader_load_what_they_would_load_in_a_process(tmp_path):
    path = script(
        tmp_path,
        """
        import os, sys, threading
        import torch, torch.distributed as dist
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Own(Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, index):
                return index, int(os.environ.get("RANK", "0")), torch.rand(()).item(), os.getpid()

        if "RANK" in os.environ:
            dist.init_process_group("gloo")
            sampler = DistributedSampler(Own(), shuffle=False)
            threading.Thread(target=threading.Event().wait, daemon=True).start()  # as a progress bar does
        else:
            sampler = range(0, 16, 2)
        torch.manual_seed(7)
        loader = DataLoader(
            Own(), batch_size=2, sampler=sampler, num_workers=2, persistent_workers=True,
            multiprocessing_context="fork",
        )
        batches = []
        for epoch in range(2):
            for index, rank, drawn, process in loader:
                batches.append((index.tolist(), drawn.tolist()))
                if "RANK" in os.environ:
                    assert set(rank.tolist()) == {dist.get_rank()}
                    assert os.getpid() not in process.tolist()
                    dist.barrier()
        if "RANK" not in os.environ:
            print(batches)
        """,
    )

    before = multiprocessing.active_children()  # of other tests
    results = run(path, 2).results
    left = set(multiprocessing.active_children()) - set(before)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)

    assert not left
    assert str(results[0]["batches"]) == alone.stdout.strip()
    assert [index for indices, _ in results[1]["batches"] for index in indices] == [*range(1, 16, 2)] * 2


def pool() -> None:
    with ProcessPoolExecutor(1) as executor:
        executor.submit(print).result()


STARTS = {
    "fork": lambda: os.fork(), "spawn": lambda: torch.multiprocessing.spawn(print, nprocs=2), "pool": pool,
    "start": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
}  # fmt: skip


@pytest.mark.parametrize("way", STARTS)
def test_other_processes_are_refused_with_the_way_out(way):
    with pytest.raises(RankError, match=r"starts a process from a rank.*--processes") as caught:
        run(lambda rank: STARTS[way](), 2)

    assert isinstance(caught.value.__cause__, NotSupportedError)
    pid = os.fork()  # and afterwards all is as it was
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_commands_may_be_run():
    assert run(lambda rank: subprocess.run(["true"], check=True).returncode, 2).results == [0, 0]
