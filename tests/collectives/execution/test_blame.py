"""Blame for a failure: by reports laid side by side, and by communicators over threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import CollectiveTimeoutError, MismatchError, NotSupportedError
from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.execution.blame import Messages, Report, diagnose, judge, spell_ranks
from collectives.execution.call import NUM_RECENT, Call, RecentCalls
from collectives.transports.threaded import run_threads

CALL = Call(3, "all_reduce", "ring", 1024, "float32", "sum")
MESSAGE = Call(4, "message", "message", 1024, "float32", lane=(2, 1, 5))


def report(**changes: Any) -> Report:
    return Report(replace(CALL, **changes), "step 0: Recv(peer=1, chunk=0)")


def test_a_rank_that_called_something_else_is_named() -> None:
    reports = {0: report(), 1: report(count=7), 2: report()}

    error = diagnose(0, report(), reports, "timed out after 5 s", judge(reports))

    assert isinstance(error, MismatchError)
    assert "rank 1 called something else: all_reduce #3 (ring, 7 × float32, sum), the others" in str(error)
    assert "  rank 1: in all_reduce #3 (ring, 7 × float32, sum), step 0: Recv" in str(error)


def test_the_first_difference_counts_also_where_ranks_have_gone_on() -> None:
    begun, other = report(), report(collective="broadcast")
    ahead = replace(report(sequence=4), recent=(CALL, replace(CALL, sequence=4)))

    verdict = judge({0: begun, 1: ahead, 2: other, 3: ahead})

    assert verdict.text.startswith("rank 2 called something else: broadcast #3")


def test_where_no_call_is_that_of_most_ranks_all_are_laid_side_by_side() -> None:
    verdict = judge({0: report(), 1: report(count=7), 2: None})

    assert verdict.kind is MismatchError
    assert "rank 0 all_reduce #3 (ring, 1024 × float32, sum), rank 1 all_reduce #3 (ring, 7 ×" in verdict.text
    assert verdict.text.endswith("no report from rank 2")


def test_ranks_without_a_report_are_named_and_those_that_wait_for_them_at_an_earlier_call_are_not() -> None:
    verdict = judge({0: report(), 1: None, 2: report(sequence=2)})

    assert verdict.kind is CollectiveTimeoutError
    assert verdict.text.startswith("rank 1 did not take part")


def test_where_all_report_those_at_an_earlier_call_are_named() -> None:
    assert judge({0: report(), 1: report(sequence=2), 2: report()}).text.startswith(
        "rank 1 did not take part"
    )


def test_a_report_survives_its_way_through_a_store() -> None:
    given = replace(report(root=2), recent=(CALL, MESSAGE, replace(CALL, sequence=4)))

    assert Report.from_json(given.to_json()) == given


def test_only_the_two_ranks_of_a_message_are_to_blame_for_it() -> None:
    waits, computes = Report(MESSAGE, "step 0"), None

    def blamed(at_the_other_end: Report | None, gone: tuple[int, ...] = ()) -> str:
        return judge({0: computes, 1: at_the_other_end, 2: waits}, dict.fromkeys(gone, "")).text

    assert blamed(None).startswith("rank 1 did not take part: killed")
    assert blamed(waits, gone=(0, 1)).startswith("rank 1 did not take part: killed")
    assert blamed(waits).startswith("every rank called it")


def test_what_became_of_a_rank_is_said_where_it_is_known() -> None:
    verdict = judge({0: report(), 1: None, 2: None}, {1: "killed at 5 s", 2: "finished at 3 s"})

    assert verdict.text == "ranks 1, 2 did not take part: killed at 5 s; finished at 3 s"


def test_many_ranks_are_spelled_in_rows() -> None:
    assert spell_ranks([3]) == "rank 3"
    assert spell_ranks(range(8)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7"
    assert spell_ranks([*range(3), 5, *range(7, 64)]) == "ranks 0-2, 5, 7-63"


def test_a_message_that_a_rank_has_not_come_to_is_named() -> None:
    earlier = replace(MESSAGE, sequence=3)
    elsewhere = replace(report(), recent=(earlier, CALL))
    waits = Report(MESSAGE, "step 0", (earlier, MESSAGE, CALL))

    verdict = judge({0: report(), 1: elsewhere, 2: waits})

    assert verdict.kind is CollectiveTimeoutError
    assert verdict.text.startswith(
        "rank 1 did not take part in message #4 from rank 2 to rank 1 (tag 5, 1024 × float32): killed"
    )


def test_messages_and_collectives_in_flight_are_compared_number_by_number() -> None:
    other = replace(MESSAGE, count=7)
    waits = Report(MESSAGE, "step 0", (MESSAGE,))

    message = judge({0: report(), 1: replace(report(), recent=(other, CALL)), 2: waits})
    collective = judge({0: report(), 1: Report(MESSAGE, "step 0", (replace(CALL, count=7),)), 2: report()})

    assert (message.kind, collective.kind) == (MismatchError, MismatchError)
    assert "rank 1 message #4 from rank 2 to rank 1 (tag 5, 7 × float32)" in message.text
    assert collective.text.startswith("rank 1 called something else: all_reduce #3 (ring, 7 ×")


def test_many_messages_do_not_make_a_report_forget_the_collectives() -> None:
    recent = RecentCalls()
    recent.append(CALL)
    for sequence in range(100):
        recent.append(replace(MESSAGE, sequence=sequence))

    assert CALL in tuple(recent)
    assert len(tuple(recent)) == 1 + NUM_RECENT


@pytest.mark.parametrize(("count", "dtype"), [(4, torch.float32), (5, torch.int32)])
def test_messages_that_differ_are_named_and_bring_nothing(count: int, dtype: torch.dtype) -> None:
    def ends_that_differ(transport: Any) -> str:
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


def test_a_message_to_a_rank_that_has_returned_fails_at_once() -> None:
    def sends_to_one(transport: Any) -> None:
        if transport.rank == 0:
            Communicator(ProgramLauncher(transport)).send(torch.ones(3), 1)

    with pytest.raises(CollectiveTimeoutError, match="rank 1 did not take part: killed, stalled"):
        run_threads(sends_to_one, 3, timeout=60)


def test_a_rank_that_returns_without_calling_ends_the_wait_of_the_others_at_once() -> None:
    def calls_unless_two(transport: Any) -> None:
        if transport.rank != 2:
            Communicator(ProgramLauncher(transport)).all_reduce(torch.ones(10))

    with pytest.raises(CollectiveTimeoutError, match="rank 2 did not take part"):
        run_threads(calls_unless_two, 4, timeout=60)


@settings(max_examples=4)
@given(
    fault=st.sampled_from(["collective", "size", "dtype", "op"]),
    culprit=st.integers(0, 3),
    call=st.integers(0, 3),
    algorithm=st.sampled_from(["ring", "tree", "direct"]),
)
def test_a_mismatch_is_named_on_threads(fault: str, culprit: int, call: int, algorithm: str) -> None:
    def make_calls(transport: Any) -> None:
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


def test_what_follows_a_failure_fails_too() -> None:
    def goes_on(transport: Any) -> None:
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
        (torch.ones(2, dtype=torch.int32), "avg", "is not an integer"),
        (torch.ones(2), "median", "op must be one of sum, avg"),
        (torch.ones(2).to_sparse(), "sum", "use a dense tensor"),
    ],
)
def test_what_cannot_be_reduced_is_refused_before_a_message_is_sent(
    tensor: torch.Tensor, op: Any, message: str
) -> None:
    def reduce(transport: Any) -> None:
        Communicator(ProgramLauncher(transport)).all_reduce(tensor, op)

    with pytest.raises(NotSupportedError, match=message):
        run_threads(reduce, 1)


def in_ring(rank: int, sequence: int = 3, *, sent: int, awaited: int | None) -> Report:
    """Return the report of one of four ranks that has sent so much in a ring, and waits for so many."""
    waits = {} if awaited is None else {(rank - 1) % 4: awaited}
    messages = Messages({(rank + 1) % 4: sent}, waits)
    return Report(replace(CALL, sequence=sequence), "step", (CALL,), messages)


def test_a_rank_whose_messages_are_lost_both_ways_is_named() -> None:
    reports = {
        0: in_ring(0, sent=3, awaited=3),
        1: in_ring(1, sent=3, awaited=None),
        2: in_ring(2, sent=2, awaited=2),
        3: in_ring(3, sent=2, awaited=2),
    }

    assert judge(reports).text == (
        "messages were sent and did not arrive, from rank 1 to rank 2, from rank 2 to rank 3: look at the "
        "network of rank 2"
    )


def test_who_waits_in_an_earlier_call_for_what_was_sent_in_it_is_not_to_blame() -> None:
    gone_on = in_ring(1, sequence=4, sent=1, awaited=1)
    reports = {
        0: in_ring(0, sent=3, awaited=3),
        1: gone_on,
        2: in_ring(2, sent=3, awaited=3),
        3: in_ring(3, sent=2, awaited=3),
    }

    assert "from rank 1 to rank 2, from rank 2 to rank 3: look at" in judge(reports).text


def test_what_was_not_sent_is_not_lost() -> None:
    reports = {rank: in_ring(rank, sent=rank, awaited=4) for rank in range(4)}

    assert judge(reports).text == "every rank called it, yet its messages did not arrive"


def test_messages_of_a_report_survive_its_way_and_are_renumbered() -> None:
    given = in_ring(1, sent=3, awaited=2)

    assert Report.from_json(given.to_json()) == given
    assert given.at([10, 11, 12, 13]).messages == Messages({12: 3}, {10: 2})
