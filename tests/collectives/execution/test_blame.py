"""Blame for a failure: by reports laid side by side, and by communicators over threads."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import CollectiveTimeoutError, Communicator, MismatchError, NotSupportedError
from collectives.communicators.programs import ProgramLauncher
from collectives.execution.blame import Messages, Report, judge, spell_ranks
from collectives.execution.call import NUM_RECENT, Call, RecentCalls
from collectives.transports.threaded import run_threads

CALL = Call(3, "all_reduce", "ring", 1024, "float32", "sum")
MESSAGE = Call(4, "message", "message", 1024, "float32", lane=(2, 1, 5))


def report(**changes) -> Report:
    return Report(replace(CALL, **changes), "step 0: Recv(peer=1, chunk=0)")


def in_ring(rank: int, sequence: int = 3, *, sent: int, awaited: int | None = None) -> Report:
    """Return the report of one of four ranks that has sent so much in a ring, and waits for so many."""
    waits = {} if awaited is None else {(rank - 1) % 4: awaited}
    messages = Messages({(rank + 1) % 4: sent}, waits)
    return Report(replace(CALL, sequence=sequence), "step", (CALL,), messages)


AHEAD = replace(report(sequence=4), recent=(CALL, replace(CALL, sequence=4)))
WAITS = Report(MESSAGE, "step 0")
EARLIER = replace(MESSAGE, sequence=3)
BESIDE_ANOTHER_MESSAGE = replace(report(), recent=(replace(MESSAGE, count=7), CALL))
BESIDE_ANOTHER_CALL = Report(MESSAGE, "step 0", (replace(CALL, count=7),))
NOT_AT_THE_MESSAGE = replace(report(), recent=(EARLIER, CALL))
OTHER = report(collective="broadcast")
ABSENT = "CollectiveTimeoutError: rank 1 did not take part"


MISMATCH, TIMEOUT = "MismatchError: ", "CollectiveTimeoutError: "
VERDICTS = [
    # The first difference counts, also where ranks have gone on.
    (MISMATCH + "rank 2 called something else: broadcast #3", [report(), AHEAD, OTHER, AHEAD], {}),
    # Where no call is that of most ranks, all are laid side by side.
    (MISMATCH + r".*rank 0 all_reduce #3 \(ring, 1024 × float32, sum\), rank 1 all_reduce #3 "
     r"\(ring, 7 ×.*no report from rank 2$", [report(), report(count=7), None], {}),
    # Those that wait at an earlier call for a rank without a report are not named, unless all report.
    (ABSENT, [report(), None, report(sequence=2)], {}),
    (ABSENT, [report(), report(sequence=2), report()], {}),
    (TIMEOUT + "ranks 1, 2 did not take part: killed at 5 s; finished at 3 s$", [report(), None, None],
     {1: "killed at 5 s", 2: "finished at 3 s"}),
    # Only the two ranks of a message are to blame for it.
    (f"{ABSENT}: killed", [None, None, WAITS], {}),
    (f"{ABSENT}: killed", [None, WAITS, WAITS], {0: "", 1: ""}),
    (TIMEOUT + "every rank called it", [None, WAITS, WAITS], {}),
    (rf"{ABSENT} in message #4 from rank 2 to rank 1 \(tag 5, 1024 × float32\): killed",
     [report(), NOT_AT_THE_MESSAGE, Report(MESSAGE, "step 0", (EARLIER, MESSAGE, CALL))], {}),
    # Messages and collectives in flight are compared number by number.
    (MISMATCH + r".*rank 1 message #4 from rank 2 to rank 1 \(tag 5, 7 × float32\)",
     [report(), BESIDE_ANOTHER_MESSAGE, Report(MESSAGE, "step 0", (MESSAGE,))], {}),
    (MISMATCH + r"rank 1 called something else: all_reduce #3 \(ring, 7 ×",
     [report(), BESIDE_ANOTHER_CALL, report()], {}),
    # What was sent and has not arrived is lost; who waits in an earlier call for it is not to blame.
    (TIMEOUT + "messages were sent and did not arrive, from rank 1 to rank 2, from rank 2 to rank 3: "
     "look at the network of rank 2$",
     [in_ring(0, sent=3, awaited=3), in_ring(1, sent=3),
      *(in_ring(rank, sent=2, awaited=2) for rank in (2, 3))], {}),
    (TIMEOUT + ".*from rank 1 to rank 2, from rank 2 to rank 3: look at",
     [in_ring(0, sent=3, awaited=3), in_ring(1, sequence=4, sent=1, awaited=1),
      in_ring(2, sent=3, awaited=3), in_ring(3, sent=2, awaited=3)], {}),
    (TIMEOUT + "every rank called it, yet its messages did not arrive$",
     [in_ring(rank, sent=rank, awaited=4) for rank in range(4)], {}),
]  # fmt: skip


@pytest.mark.parametrize(("said", "reports", "fates"), VERDICTS)
def test_the_verdict_names_who_or_what_is_to_blame(said, reports, fates):
    verdict = judge(dict(enumerate(reports)), fates)

    assert re.match(said, f"{verdict.kind.__name__}: {verdict.text}"), verdict


@pytest.mark.parametrize(
    "given",
    [
        replace(report(root=2), recent=(CALL, MESSAGE, replace(CALL, sequence=4))),
        in_ring(1, sent=3, awaited=2),
    ],
)
def test_a_report_survives_its_way_through_a_store(given):
    assert Report.from_json(given.to_json()) == given


def test_messages_of_a_report_are_renumbered():
    assert in_ring(1, sent=3, awaited=2).at([10, 11, 12, 13]).messages == Messages({12: 3}, {10: 2})


def test_many_ranks_are_spelled_in_rows():
    assert spell_ranks([3]) == "rank 3"
    assert spell_ranks(range(8)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7"
    assert spell_ranks([*range(3), 5, *range(7, 64)]) == "ranks 0-2, 5, 7-63"


def test_many_messages_do_not_make_a_report_forget_the_collectives():
    recent = RecentCalls()
    recent.append(CALL)
    for sequence in range(100):
        recent.append(replace(MESSAGE, sequence=sequence))

    assert CALL in tuple(recent)
    assert len(tuple(recent)) == 1 + NUM_RECENT


@pytest.mark.parametrize(("count", "dtype"), [(4, torch.float32), (5, torch.int32)])
def test_messages_that_differ_are_named_and_bring_nothing(count, dtype):
    def ends_that_differ(transport):
        communicator, tensor = Communicator(ProgramLauncher(transport)), torch.zeros(5)
        if transport.rank == 0:
            works = [communicator.send(torch.ones(5), 1, tag=3, async_op=True)]
        elif transport.rank == 1:
            received = torch.zeros(count, dtype=dtype), tensor
            works = [communicator.recv(into, 0, tag=3, async_op=True) for into in received]
        else:
            return ""
        with pytest.raises(MismatchError) as caught:
            works[-1].wait()
        assert torch.equal(tensor, torch.zeros(5))
        return str(caught.value)

    for text in run_threads(ends_that_differ, 3, timeout=1.0)[:2]:
        assert "the ranks called different things: " in text
        assert "rank 0 message #0 from rank 0 to rank 1 (tag 3, 5 × float32)" in text
        assert f"rank 1 message #0 from rank 0 to rank 1 (tag 3, {count} × {str(dtype)[6:]})" in text


@pytest.mark.parametrize("calls", ["all_reduce", "send"])
def test_a_rank_that_returns_without_calling_ends_the_wait_of_the_others_at_once(calls):
    def calls_unless_one(transport):
        communicator = Communicator(ProgramLauncher(transport))
        if calls == "send" and transport.rank == 0:
            communicator.send(torch.ones(3), 1)
        if calls == "all_reduce" and transport.rank != 1:
            communicator.all_reduce(torch.ones(10))

    with pytest.raises(CollectiveTimeoutError, match="rank 1 did not take part"):
        run_threads(calls_unless_one, 4, timeout=60)


@settings(max_examples=4)
@given(
    fault=st.sampled_from(["collective", "size", "dtype", "op"]),
    culprit=st.integers(0, 3),
    call=st.integers(0, 3),
    algorithm=st.sampled_from(["ring", "tree", "direct"]),
)
def test_a_mismatch_is_named_on_threads(fault, culprit, call, algorithm):
    def make_calls(transport):
        communicator = Communicator(ProgramLauncher(transport, algorithm))
        for number in range(5):
            wrong = fault if (transport.rank, number) == (culprit, call) else ""
            tensor = torch.ones(
                11 if wrong == "size" else 10, dtype=torch.int64 if wrong == "dtype" else None
            )
            if wrong == "collective":
                communicator.broadcast(tensor)
            else:
                communicator.all_reduce(tensor, "max" if wrong == "op" else "sum")
                assert (tensor == 4).all()

    with pytest.raises(MismatchError, match=f"rank {culprit} called something else: .* #{call} "):
        run_threads(make_calls, 4, timeout=2.0)


def test_what_follows_a_failure_fails_too():
    def goes_on(transport):
        communicator = Communicator(ProgramLauncher(transport))
        if transport.rank == 0:
            with pytest.raises(CollectiveTimeoutError):
                communicator.all_reduce(torch.ones(3))
            with pytest.raises(
                CollectiveTimeoutError, match="an earlier collective of this group has failed"
            ):
                communicator.all_reduce(torch.ones(3))

    run_threads(goes_on, 2, timeout=0.2)


@pytest.mark.parametrize(
    ("tensor", "op", "message"),
    [
        (torch.ones(2, dtype=torch.bool), "avg", "has no average"),
        (torch.ones(2), "median", "op must be one of sum, avg"),
        (torch.ones(2).to_sparse(), "sum", "use a dense tensor"),
    ],
)
def test_what_cannot_be_reduced_is_refused_before_a_message_is_sent(tensor, op, message):
    def reduce(transport):
        Communicator(ProgramLauncher(transport)).all_reduce(tensor, op)

    with pytest.raises(NotSupportedError, match=message):
        run_threads(reduce, 1)
