from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collectives import AlgorithmFileError, ProgramError, resolve_algorithm, verify
from collectives.catalogue import bounds
from collectives.catalogue.bounds import OutOfBoundsError, within


def test_what_ends_in_time_is_left_alone() -> None:
    assert within(10.0, sum, range(10)) == 45


def _loop() -> None:
    while True:
        pass


def test_a_loop_without_end_is_stopped_on_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.02)
    caught: list[str] = []

    def run() -> None:
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
    in_background: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_background:
        request.getfixturevalue("ignores_interrupts")
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(bounds, "_SIGNAL_AFTER", 0.0)

    with pytest.raises(OutOfBoundsError, match=r"more than 0\.05 s"):
        within(0.05, time.sleep, 3600)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ignores_interrupts")
def test_what_ignores_interrupts_goes_on_doing_so_while_users_code_runs() -> None:
    assert within(10.0, lambda: signal.raise_signal(signal.SIGINT) or "unheard") == "unheard"


def test_memory_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "MAX_GROWTH", 64 << 20)
    held = []

    def hoard() -> None:
        while True:
            held.append(bytearray(1 << 16))

    with pytest.raises(OutOfBoundsError, match="more than 64 MiB of memory"):
        within(30.0, hoard)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_the_code_raises_to_end_the_process_is_a_fault(kind: type[BaseException]) -> None:
    def end() -> None:
        raise kind

    with pytest.raises(OutOfBoundsError, match=f"end the process by {kind.__name__}"):
        within(10.0, end)
    with pytest.raises(OutOfBoundsError, match="SystemExit: 3"):
        within(10.0, lambda: os._exit(3))


def test_a_true_interrupt_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt):
        within(10.0, lambda: signal.raise_signal(signal.SIGINT))


def test_what_the_code_prints_goes_to_the_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    within(10.0, lambda: (print("of the file"), sys.stdout.write("too\n")))
    print("ours")

    said = capsys.readouterr()
    assert said.out == "ours\n"
    assert said.err == "of the file\ntoo\n"


def test_nothing_is_left_behind() -> None:
    left = os._exit, sys.stdout

    assert within(10.0, lambda: within(10.0, lambda: os._exit)) is not left[0]
    assert (os._exit, sys.stdout) == left


def test_an_endless_program_in_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "endless.py"
    path.write_text("def f(rank, world_size):\n    while True:\n        yield ()\n")
    monkeypatch.setattr("collectives.catalogue.user_files.MAX_STEPS", 100)

    with pytest.raises(ProgramError, match="still not done after 228 steps"):
        verify(f"{path}:f", 2)


def test_a_file_is_imported_once_and_again_when_it_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    source = "print('imported')\ndef f(rank, world_size):\n    yield ()\n"
    path.write_text(source)

    first: Any = resolve_algorithm(f"{path}:f")
    assert resolve_algorithm(f"{path}:f").program is first.program
    assert capsys.readouterr().err == "imported\n"
    path.write_text(source + "# changed\n")
    assert resolve_algorithm(f"{path}:f").program is not first.program
    assert capsys.readouterr().err == "imported\n"


def test_a_callable_whose_parameters_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("f = max\n")

    with pytest.raises(AlgorithmFileError, match="no function of Python's"):
        resolve_algorithm(f"{path}:f")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("lambda p: 1 / 0", "num_chunks raised ZeroDivisionError"),
        ("lambda p: 0.5", "is 0.5; expected a number"),
    ],
)
def test_a_number_of_chunks_that_cannot_be_is_refused(tmp_path: Path, number: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        f"from collectives import algorithm\n@algorithm(num_chunks={number})\n"
        "def f(rank, world_size):\n    yield ()\n"
    )

    with pytest.raises(ProgramError, match=said):
        verify(f"{path}:f", 2)
