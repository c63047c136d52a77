"""Tables, plots and folders say what was measured, and refuse early what cannot be written."""

import errno
import json
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab.result_folder import ResultFolder
from testbed.errors import UsageError
from testbed.output.table import progress, seconds, stdout_console, table


@given(st.floats(1e-8, 1e5))
def test_a_time_as_shown_is_the_time(value):
    number, unit = seconds(value).split()

    scale = {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * scale == pytest.approx(value, rel=0.006, abs=0.6e-9)


def test_nothing_is_shown_of_progress_when_nobody_watches(capsys):
    with progress(3) as advance:
        advance("working")

    assert capsys.readouterr() == ("", "")


def test_the_manifest_lists_every_file(tmp_path):
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


def test_a_folder_without_write_permission_is_refused_up_front(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # root may write everywhere

    with pytest.raises(UsageError, match="Permission denied; choose another folder with --output"):
        ResultFolder(tmp_path)


def test_what_is_printed_is_shown_as_it_is(capsys):
    stdout_console().print("[/red] :smile:", table(("[b]name", "figure"), [("[/b]:x:", "1")]))

    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/red] :smile:", "[b]name", "[/b]:x:"))
