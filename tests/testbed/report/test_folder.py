"""Tables, plots and folders say what was measured, and refuse early what cannot be written."""

from __future__ import annotations

import errno
import io
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.lab.result_folder import ResultFolder
from testbed.errors import UsageError
from testbed.output.folder import SCHEMA
from testbed.output.table import progress, seconds, stdout_console, table
from testbed.planning.points import Point
from testbed.planning.row import Row
from testbed.plots.picture import draw
from testbed.report.scaling import scaling_figure
from testbed.result import Result

ROWS = [
    Row(
        Point("step", "model", network, network, ranks, strategy=strategy),
        seconds=0.2,
        efficiency=0.5,
        exposed_seconds=0.1 * (ranks > 1),
        num_buckets=5,
        profile="model",
    )
    for network in ("fast", "slow", "slower")
    for strategy in ("after_backward", "wait_free", "own")
    for ranks in (1, 2, 4)
]


def rendered(*items: object, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(*items)
    return stream.getvalue()


def test_a_time_has_three_digits_and_a_fitting_unit() -> None:
    times = {0: "0", 2e-9: "2 ns", 1.5e-6: "1.50 µs", 0.0831: "83.1 ms", 0.9999: "1000 ms", 12.34: "12.3 s"}

    assert {value: seconds(value) for value in times} == times


@given(st.floats(1e-8, 1e5))
def test_a_time_as_shown_is_the_time(value: float) -> None:
    number, unit = seconds(value).split()

    scale = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * scale == pytest.approx(value, rel=0.006, abs=0.6e-9)


def test_figures_are_right_aligned_and_text_is_not() -> None:
    lines = rendered(table(("name", "figure"), [("a", "1"), ("long name", "1000")])).splitlines()

    assert lines[2].startswith("a ")
    assert [line.rstrip()[-1] for line in lines[2:]] == ["1", "0"]
    assert lines[2].index("1") == lines[3].rindex("0")


def test_nothing_is_shown_of_progress_when_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(3) as advance:
        advance("working")

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("networks", [["fast"], ["fast", "slow", "slower"]])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_drawn_for_any_number_of_networks(tmp_path: Path, networks: list[str], suffix: str) -> None:
    path = tmp_path / f"scaling.{suffix}"

    drawn([row for row in ROWS if row.point.network in networks], path)

    assert path.stat().st_size > 5000
    assert "matplotlib.pyplot" not in sys.modules


def drawn(rows: list[Row], path: Path) -> None:
    draw(scaling_figure(rows), path, title="t", note="n")


def test_a_result_says_how_it_was_got() -> None:
    own = Result("q", "a", "simulated", "m", seed=3, topologies={"t": "abc"}, body={"rows": [1]})
    result = own.document()

    assert result["schema"] == SCHEMA
    assert (result["method"], result["model"], result["seed"], result["rows"]) == ("simulated", "m", 3, [1])
    assert result["topologies"] == {"t": "abc"}
    assert {"collective-testbed", "python", "torch", "numpy", "simpy"} <= result["versions"].keys()
    assert result["command"]


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "deep" / "results")
    folder.write_json("a.json", "the a", {"x": 1})
    folder.file("sub/b.bin", "the b").write_bytes(b"b")

    manifest = json.loads(folder.write_manifest(model="m").read_text())

    assert manifest["files"] == {"a.json": "the a", "sub/b.bin": "the b", "manifest.json": "this list"}
    assert sorted(path.name for path in folder.path.rglob("*") if path.is_file()) == [
        "a.json",
        "b.bin",
        "manifest.json",
    ]


def test_a_folder_without_write_permission_is_refused_up_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # root may write everywhere

    with pytest.raises(UsageError, match="Permission denied; choose another folder with --output"):
        ResultFolder(tmp_path)


def test_what_is_printed_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    stdout_console().print("[/red] :smile:", table(("[b]name", "figure"), [("[/b]:x:", "1")]))

    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/red] :smile:", "[b]name", "[/b]:x:"))
