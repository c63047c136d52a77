"""Trials of real processes: one is killed, or its cable cut, at a random moment, and others tell of it."""

from __future__ import annotations

import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.host import Host
from benchmarks.lab.shaped.hosts import Hosts, started
from benchmarks.lab.shaped.plan import plan
from sim import load_network
from tests.distributed.faults import TIMEOUT, Account, Scenario, go_through
from tests.distributed.pool import Failure, WorkerPool
from tools.process_faults.training import ON_TESTBED, SECONDS_TO_CONNECT, TRAININGS, train_until_one_fails

RANKS = 4
MARGIN = 8.0
"""Seconds by which an error may come late on a machine that has more processes than cores."""
WAYS = ("ring", "tree", "halving_doubling", "testbed")
KINDS = ("kill", "kill training", "cut")


@dataclass(frozen=True)
class Trial:
    """What is done to which rank, and when.

    Attributes:
        kind: one of `KINDS`.
        way: algorithm, ``testbed``, ``native``, or one of `TRAININGS`.
        culprit: the rank.
        delay: after how many seconds.
        seed: of the calls that ranks make.
    """

    kind: str
    way: str
    culprit: int
    delay: float
    seed: int

    @classmethod
    def drawn(cls, seed: int, kinds: tuple[str, ...]) -> Trial:
        """Return the trial that *seed* means."""
        chance = random.Random(seed)
        kind = chance.choice(kinds)
        ways = {"kill": (*WAYS, "native"), "kill training": tuple(TRAININGS), "cut": WAYS}[kind]
        return cls(kind, chance.choice(ways), chance.randrange(RANKS), chance.uniform(0, 1.5), seed)


def faults_of(trial: Trial, pool: WorkerPool) -> list[str]:
    """Carry out *trial*; return what did not come out as it must, in words."""
    told = _cut(trial) if trial.kind == "cut" else _kill(trial, pool)
    faults = []
    for rank, account in enumerate(told):
        if rank == trial.culprit and trial.kind != "cut":
            if not (isinstance(account, Failure) and account.kind == "died"):
                faults.append(f"rank {rank} was to be killed, and told {account}")
        elif not isinstance(account, Account):
            faults.append(f"rank {rank} did not raise in time: {account}")
        else:
            faults += [f"rank {rank}: {text}" for text in _faults_of_survivor(trial, account)]
    return faults


def _faults_of_survivor(trial: Trial, account: Account) -> Iterator[str]:
    first = account.error.partition("\n")[0]
    if not re.match(r"(CollectiveTimeoutError|MismatchError|DDPError|RuntimeError): ", first):
        yield f"expected an error of the collective, got {first!r}"
    if not re.search(_culprit_in(trial), account.error):
        yield f"nobody is named: {account.error!r}"
    if account.wrong:
        yield f"{account.wrong} collectives were reported as complete and are wrong"
    timeout = SECONDS_TO_CONNECT if trial.way == ON_TESTBED else TIMEOUT
    if account.seconds > timeout + MARGIN:
        yield f"raised after {account.seconds:.1f} s; the time-out is {timeout:.0f} s"


def _culprit_in(trial: Trial) -> str:
    """Return a pattern for that part of an error that names the culprit."""
    if trial.kind == "cut":
        return rf"did not arrive, .*rank {trial.culprit}\b"
    return rf"; rank {trial.culprit} did not take part"


def _kill(trial: Trial, pool: WorkerPool) -> list[Any]:
    scenario = Scenario("killed", trial.way, trial.culprit, 0, trial.delay, trial.seed)
    run = train_until_one_fails if trial.kind == "kill training" else go_through
    return pool.run_outcomes(run, RANKS, scenario, timeout=60.0)


def _cut(trial: Trial) -> list[Any]:
    scenario = Scenario("cut", trial.way, trial.culprit, 0, trial.delay, trial.seed)
    wires = plan(load_network("ethernet-10g").topology(RANKS))
    with (
        tempfile.TemporaryDirectory() as name,
        built(wires) as network,
        started(network, timeout=30.0) as hosts,
    ):
        hosts.tell(_survive, scenario, name)
        _await_all(Path(name))
        time.sleep(trial.delay)
        network.cut(wires.link_of(f"rank {trial.culprit} up"))
        return _answers(hosts, 30.0)


def _survive(host: Host, scenario: Scenario, folder: str) -> Account:
    os.environ["TESTBED_TRANSPORT"] = "gloo"  # what goes through memory needs no cable
    return go_through(host.rank, host.num_hosts, scenario, (Path(folder) / f"{host.rank}").touch)


def _await_all(folder: Path) -> None:
    """Return when every rank has begun, or after half a minute, when its answer tells why not."""
    deadline = time.monotonic() + 30.0
    while len(list(folder.iterdir())) < RANKS and time.monotonic() < deadline:
        time.sleep(0.01)


def _answers(hosts: Hosts, seconds: float) -> list[Any]:
    """Return what each host answers within so many *seconds*, or in words that it does not."""
    answers: list[Any] = ["no answer"] * len(hosts)
    left = {connection: rank for rank, connection in enumerate(hosts.connections)}
    deadline = time.monotonic() + seconds
    while left:
        ready = wait(list(left), max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        for connection in ready:
            rank = left.pop(connection)  # type: ignore[call-overload]
            _, answers[rank] = connection.recv()  # type: ignore[call-arg, union-attr]
    return answers


@contextmanager
def workers() -> Iterator[WorkerPool]:
    """Yield a pool of processes."""
    with WorkerPool() as pool:
        yield pool
