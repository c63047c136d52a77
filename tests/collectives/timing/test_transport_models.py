"""Waits of a rank by the rule of each transport: for which step, and until when."""

from dataclasses import replace
from typing import Any

import pytest

from collectives import Algorithm, Job, NotExactError, Recv, RecvReduce, Send, Software, algorithm, simulate
from collectives.execution.transport_model import TRANSPORT_MODELS, TransportModel, transport_model
from collectives.timing import evaluate, plan
from sim import Topology
from sim.scenario import Scenario
from sim.units import parse_time

SWITCH = Topology.switch(num_ranks=3, bandwidth="1GB/s", latency=0)
US = parse_time("1us")
ARRIVING = TransportModel("arriving", reduces="arriving")


def time_of(program, model: str | TransportModel, engine="events", **options) -> int:
    nbytes = options.pop("nbytes", 3000)
    options = {"topology": SWITCH, "transport_model": model, "engine": engine, **options}
    return simulate(program, nbytes=nbytes, **options).time_ps


@algorithm(name="forwarded", num_chunks=1, collective="broadcast")
def forwarded(rank: int, world_size: int) -> Any:
    """Send the buffer from rank 0 to one after the other."""
    if rank == 0:
        yield Send(1, 0)
        yield Send(2, 0)
    elif rank == 1:
        yield Recv(0, 0)
    else:
        yield ()
        yield Recv(0, 0)


def test_sends_that_are_awaited_late_share_the_link():
    assert time_of(forwarded, "ideal") == time_of(forwarded, "gloo") == 6 * US

    def end_of_rank_1(model):
        run = simulate(forwarded, nbytes=3000, topology=SWITCH, transport_model=model, observe=True)
        (received,) = (span for span in run.trace.spans if span.rank == 1 and span.name == "step 0")
        return int(received.end_ps)

    assert end_of_rank_1("ideal") == 3 * US
    assert end_of_rank_1("gloo") == 6 * US


def time_of_steps(program: Algorithm, model: str, engine) -> int:
    """Return the time of *program*, which is no collective, and so not to be had by `simulate`."""
    job = Job("tree", 3000, collective="broadcast", software=Software(model))
    return evaluate(replace(plan(job, Scenario(SWITCH)), algorithm=program), engine).time_ps


@algorithm(name="overwrites", num_chunks=1, collective="broadcast")
def overwrites(rank: int, world_size: int, *, reduces: bool, begins: str) -> Any:
    """Send to rank 1, which is slow, and then receive from rank 2 what goes to the same place."""
    if begins == "waiting" and rank != 1:
        yield Recv(2, 0) if rank == 0 else Send(0, 0)
    if rank == 0:
        yield Send(1, 0)
        yield RecvReduce(2, 0) if reduces else Recv(2, 0)
    elif rank == 1:
        yield (Recv(0, 0),)
    else:
        yield ()
        yield (Send(0, 0),)


@pytest.mark.parametrize("engine", ["ranks", "events"])
def test_a_plain_receive_is_posted_after_the_sends_that_read_its_memory(engine):
    """A reduction is received meanwhile, and written when they are over."""

    def time(reduces, model):
        return time_of_steps(overwrites.with_parameters(reduces=reduces, begins="waiting"), model, engine)

    for model in ("gloo", "ideal"):
        assert time(False, model) == 9 * US
    assert time(True, "ideal") == 9 * US
    assert time(True, "gloo") == 6 * US


@pytest.mark.parametrize("engine", ["ranks", "events"])
def test_what_is_posted_before_a_rank_waits_is_received_meanwhile(engine):
    for reduces in (False, True):
        program = overwrites.with_parameters(reduces=reduces, begins="sending")
        assert time_of_steps(program, "ideal", engine) == 6 * US
        assert time_of_steps(program, "gloo", engine) == 3 * US


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
@pytest.mark.parametrize("model", sorted(TRANSPORT_MODELS))
def test_what_arrives_is_known_so_much_later_in_every_step(engine, model):
    plain = time_of("ring", model, engine)

    assert time_of("ring", model, engine, arrival_overhead="5us") == plain + 4 * 5 * US


@pytest.mark.parametrize("engine", ["events", "ranks"])
def test_reducing_on_arrival_costs_what_it_takes_longer_than_the_wire(engine):
    wire = time_of("ring", ARRIVING, engine)

    assert time_of("ring", ARRIVING, engine, reduction_bandwidth="1GB/s") == wire == 4 * US
    assert time_of("ring", ARRIVING, engine, reduction_bandwidth="500MB/s") == wire + 2 * US
    assert time_of("ring", "ideal", engine, reduction_bandwidth="500MB/s") == wire + 4 * US
    with pytest.raises(NotExactError, match="while they arrive"):
        time_of("ring", ARRIVING, "makespan", reduction_bandwidth="1GB/s")


def test_a_run_says_by_which_model():
    assert simulate("ring", nbytes=3000, topology=SWITCH).transport_model == "ideal"
    assert simulate("ring", nbytes=3000, topology=SWITCH, transport_model="gloo").transport_model == "gloo"
    assert transport_model(ARRIVING) is ARRIVING
    assert Job("ring", 4).software.transport_model == "ideal"
