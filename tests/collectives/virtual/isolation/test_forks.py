"""Rank threads start workers of a DataLoader, and no other processes."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch.multiprocessing

from collectives.errors import NotSupportedError
from collectives.virtual import run
from sim.errors import RankError


@pytest.mark.costly
def test_workers_of_a_data_loader_load_what_they_would_load_in_a_process(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        textwrap.dedent("""
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
        """)
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
