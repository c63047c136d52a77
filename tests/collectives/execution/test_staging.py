"""Calls, and what they copy."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotSupportedError, connect, simulate
from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.execution.call import Call
from collectives.execution.staging import staged_nbytes
from collectives.program.contracts import CONTRACTS
from collectives.virtual import run_virtual
from sim import Topology
from testbed.benchmarking.payload import Payload, num_parts

NUM_RANKS = 3


@pytest.mark.parametrize("collective", CONTRACTS)
def test_communicators_copy_what_is_counted(collective, monkeypatch):
    copied = Counter()
    rank_of = {}
    at_work = []

    def counted(copy):
        def call(tensor, *arguments, **options):
            if at_work:
                copied[at_work[-1]] += tensor.nbytes
            return copy(tensor, *arguments, **options)

        return call

    def whole(launcher, request):
        rank_of[id(request)] = launcher.rank
        return during(request, bring_together, launcher, request)

    def finish(request, *arguments):
        during(request, hand_out, request, *arguments)

    def during(request, method, *arguments):
        at_work.append(rank_of[id(request)])
        try:
            return method(*arguments)
        finally:
            at_work.pop()

    def work(rank):
        torch.distributed.init_process_group("testbed")
        place = {"rank": rank, "world_size": NUM_RANKS}
        payload = Payload(collective, 1000, torch.float32, **place)
        payload.call(connect(algorithm="auto"))

    for name in ("copy_", "clone"):
        monkeypatch.setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name)))
    bring_together, hand_out = ProgramLauncher._whole, Request.finish
    monkeypatch.setattr(ProgramLauncher, "_whole", whole)
    monkeypatch.setattr(Request, "finish", finish)
    run_virtual(work, Topology.switch(num_ranks=NUM_RANKS, bandwidth="1GB/s", latency="1us"))

    nbytes = 1000 * 4 * num_parts(collective, NUM_RANKS)
    assert max(copied.values(), default=0) == staged_nbytes(collective, NUM_RANKS, nbytes)


@given(
    collective=st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
    nbytes=st.integers(0, 10**6),
    call=st.integers(0, 500),
    cached=st.booleans(),
)
def test_a_call_takes_so_much_longer_than_its_program(collective, nbytes, call, cached):
    host = Topology.host(
        num_ranks=4, bandwidth="5GB/s", memory_bandwidth="8GB/s", latency="5us", cache=cached * 4 * nbytes,
        cache_speedup=2, cache_copy_speedup=2,
    )  # fmt: skip
    asked = {"nbytes": nbytes, "collective": collective, "transport_model": "shm", "topology": host}

    alone = simulate("direct", **asked).time_ps
    rate = (8 if cached and nbytes else 4) * 10**9
    whole = simulate("direct", **asked, call_overhead=f"{call}us", copy_bandwidth="4GB/s").time_ps

    assert whole == alone + call * 10**6 + staged_nbytes(collective, 4, nbytes) * 10**12 // rate


def test_closed_forms_know_no_calls_and_nobody_computes_beside_memory():
    host = Topology.host(num_ranks=2, bandwidth="5GB/s", memory_bandwidth="8GB/s", latency="5us")

    with pytest.raises(NotSupportedError, match="a closed form knows of neither"):
        simulate("ring", nbytes=8, topology=host, model="nccl", call_overhead="1us")
    with pytest.raises(NotSupportedError, match=r"run: over transport model 'shm' ranks carry the bytes"):
        run_virtual(print, host, transport_model="shm")


CALL = Call(3, "all_reduce", "ring", 1024, "float32", "sum")


@given(
    field=st.sampled_from(["sequence", "collective", "algorithm", "count", "dtype", "op", "root", "lane"]),
    value=st.integers(2000, 10**6),
)
def test_calls_that_differ_use_different_fingerprints(field, value):
    values = {"lane": (0, 1, value), "sequence": value, "count": value, "root": value}
    changed = {field: values.get(field, f"x{value}")}

    assert replace(CALL, **changed).fingerprint() != CALL.fingerprint()
    assert replace(CALL).fingerprint() == CALL.fingerprint()
