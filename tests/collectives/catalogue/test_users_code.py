"""Programs of users: proved before they run, and kept within bounds."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from collectives import (
    Algorithm,
    AlgorithmFileError,
    NotSupportedError,
    ProgramError,
    RecvReduce,
    Send,
    algorithm,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.catalogue import bounds
from collectives.catalogue.admission import Evidence, admitted, evidence_of, is_shipped
from collectives.catalogue.bounds import OutOfBoundsError, within
from collectives.program.channels import in_channels
from sim import Topology

RING = resolve_algorithm("ring")

SWITCH = Topology.switch(num_ranks=4, bandwidth="1GB/s", latency="1us")


def copied_ring(rank: int, world_size: int) -> Iterator[Any]:
    yield from RING(rank, world_size)


def broken_ring(rank: int, world_size: int) -> Iterator[Any]:
    for _ in range(world_size - 1):
        yield Send((rank + 1) % world_size, 0), RecvReduce((rank - 1) % world_size, 0)


def test_what_ships_needs_no_proof_and_stays_the_same_object():
    for name in ("ring", "ring:channels=4", "hierarchical:ranks_per_node=2,inner=ring", "gloo_ring"):
        shipped = resolve_algorithm(name)
        assert is_shipped(shipped)
        assert admitted(shipped, 4) is shipped
        assert evidence_of(shipped, 4) is None


def test_what_is_made_of_others_is_not_shipped():
    foreign = Algorithm("copied", copied_ring)

    assert not is_shipped(foreign)
    assert not is_shipped(replace(RING, collective="reduce"))
    assert not is_shipped(replace(RING, chunks_for=lambda world_size: 1))
    assert not is_shipped(in_channels(foreign, 2))
    assert not is_shipped(resolve_algorithm("hierarchical").with_parameters(outer=foreign))


def test_a_right_program_is_proved_for_the_world_size_and_takes_as_long_as_the_shipped_one():
    assert evidence_of(Algorithm("copied", copied_ring), 4) == Evidence("copied", "all_reduce", 4, (4,))
    of_both = [simulate(own, nbytes=4096, topology=SWITCH).time_ps for own in (copied_ring, "ring")]
    assert of_both[0] == of_both[1]


def test_a_proof_that_cannot_be_afforded_is_of_smaller_worlds_and_says_so(monkeypatch):
    monkeypatch.setattr("collectives.catalogue.admission.BUDGET", 2000)

    evidence = evidence_of(Algorithm("copied", copied_ring), 100)

    assert evidence.proved_for == (3, 6, 12)
    assert "proved for 3, 6, 12 ranks only: a proof for 100 would go through more than 2000" in str(evidence)


def test_a_wrong_program_is_not_timed():
    with pytest.raises(ProgramError, match="each exactly once"):
        simulate(broken_ring, nbytes=4096, topology=SWITCH)
    with pytest.raises(ProgramError, match="each exactly once"):
        simulate(in_channels(Algorithm("broken", broken_ring), 2), nbytes=4096, topology=SWITCH)


def test_functions_of_one_name_are_not_taken_for_each_other():
    hierarchical = resolve_algorithm("hierarchical:ranks_per_node=2")
    right, wrong = (
        Algorithm("own", program, declared_cost=RING.declared_cost) for program in (copied_ring, broken_ring)
    )

    assert evidence_of(hierarchical.with_parameters(outer=right), 4) is not None
    with pytest.raises(ProgramError):
        evidence_of(hierarchical.with_parameters(outer=wrong), 4)


@pytest.mark.parametrize(
    ("chunk", "said"), [(-1, "out of range"), (0.5, "whole numbers, got 0.5"), (10**12, "out of range")]
)
def test_a_chunk_that_cannot_be_is_refused_where_the_step_is_made(chunk, said):
    """Also where a program is another than when it was proved."""
    calls = iter(range(10**6))

    @algorithm(num_chunks=4)
    def turns_bad(rank: int, world_size: int) -> Iterator[Any]:
        bad = next(calls) > 30
        for step in RING(rank, world_size):
            first, second = step
            yield (Send(first.peer, chunk), second) if bad else step

    def time_often():
        for _ in range(10):
            simulate(turns_bad, nbytes=4096, topology=SWITCH, engine="ranks")

    with pytest.raises(ProgramError, match=said):
        time_often()


def test_an_array_form_is_checked_as_well():
    bad = False

    @algorithm(array_form=True)
    def turns_bad(rank: int, world_size: int) -> Iterator[Any]:
        for step in RING(rank, world_size):
            yield (Send(step[0].peer, step[0].chunk + world_size), step[1]) if bad else step

    checked = admitted(turns_bad, 4)
    assert simulate(checked, nbytes=4096, topology=SWITCH).engine == "makespan"
    bad = True
    with pytest.raises(ProgramError, match="all ranks at once, step 0: out of range"):
        list(checked.steps_over_ranks(4))


def test_a_program_that_is_wrong_for_one_root_alone_is_found_when_a_call_has_it():
    tree = resolve_algorithm("tree", "broadcast")

    @algorithm(collective="broadcast", num_chunks=1)
    def own(rank: int, world_size: int, *, root: int = 0) -> Iterator[Any]:
        yield from tree(rank, world_size, root=0 if root == 2 else root)

    checked = admitted(own, 4)
    assert list(checked.with_parameters(root=1).steps(0, 4))
    with pytest.raises(ProgramError, match="each exactly once"):
        list(checked.with_parameters(root=2).steps(0, 4))
    with pytest.raises(NotSupportedError, match="root must be a rank from 0 to 3, got 9"):
        evidence_of(own.with_parameters(root=9), 4)


def _loop() -> None:
    while True:
        pass


def test_a_loop_without_end_is_stopped_on_any_thread(monkeypatch):
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.02)
    caught = []

    def run():
        try:
            within(0.05, _loop)
        except OutOfBoundsError as error:
            caught.append(str(error))

    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == ["it has taken more than 0.05 s; does it end?"] * 2


@pytest.mark.parametrize("in_background", [False, True])
def test_sleep_is_stopped_on_the_main_thread_also_of_a_job_in_the_background(
    in_background, request, monkeypatch
):
    if in_background:
        request.getfixturevalue("ignores_interrupts")
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(bounds, "_SIGNAL_AFTER", 0.0)

    with pytest.raises(OutOfBoundsError, match=r"more than 0\.05 s"):
        within(0.05, time.sleep, 3600)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ignores_interrupts")
def test_what_ignores_interrupts_goes_on_doing_so_while_users_code_runs():
    assert within(10.0, lambda: signal.raise_signal(signal.SIGINT) or "unheard") == "unheard"


def test_memory_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "MAX_GROWTH", 64 << 20)
    held = []

    def hoard():
        while True:
            held.append(bytearray(1 << 16))

    with pytest.raises(OutOfBoundsError, match="more than 64 MiB of memory"):
        within(30.0, hoard)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_the_code_raises_to_end_the_process_is_a_fault(kind):
    def end():
        raise kind

    with pytest.raises(OutOfBoundsError, match=f"end the process by {kind.__name__}"):
        within(10.0, end)
    with pytest.raises(OutOfBoundsError, match="SystemExit: 3"):
        within(10.0, lambda: os._exit(3))


def test_a_true_interrupt_interrupts():
    with pytest.raises(KeyboardInterrupt):
        within(10.0, lambda: signal.raise_signal(signal.SIGINT))


def test_what_the_code_prints_goes_to_the_standard_error(capsys):
    within(10.0, lambda: (print("of the file"), sys.stdout.write("too\n")))
    print("ours")

    said = capsys.readouterr()
    assert said.out == "ours\n"
    assert said.err == "of the file\ntoo\n"


def test_nothing_is_left_behind():
    left = os._exit, sys.stdout

    assert within(10.0, lambda: within(10.0, lambda: os._exit)) is not left[0]
    assert (os._exit, sys.stdout) == left


def test_a_file_is_imported_once_and_again_when_it_has_changed(tmp_path, capsys):
    path = tmp_path / "mine.py"
    source = "print('imported')\ndef f(rank, world_size):\n    yield ()\n"
    path.write_text(source)

    first = resolve_algorithm(f"{path}:f")
    assert resolve_algorithm(f"{path}:f").program is first.program
    assert capsys.readouterr().err == "imported\n"
    path.write_text(source + "# changed\n")
    assert resolve_algorithm(f"{path}:f").program is not first.program
    assert capsys.readouterr().err == "imported\n"


PLAIN = "def f(rank, world_size):\n    yield ()\n"
DECLARED = "from collectives import algorithm\n@algorithm(num_chunks={})\n" + PLAIN


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("def f(rank, world_size):\n    while True:\n        yield ()\n", ProgramError, "not done after 228"),
        ("f = max\n", AlgorithmFileError, "no function of Python's"),
        (DECLARED.format("lambda p: 1 / 0"), ProgramError, "num_chunks raised ZeroDivisionError"),
        (DECLARED.format("lambda p: 0.5"), ProgramError, "is 0.5; expected a number"),
    ],
)
def test_a_function_in_a_file_that_is_no_program_is_refused(tmp_path, monkeypatch, source, error, said):
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.setattr("collectives.catalogue.user_files.MAX_STEPS", 100)

    with pytest.raises(error, match=said):
        verify(f"{tmp_path / 'mine.py'}:f", 2)
