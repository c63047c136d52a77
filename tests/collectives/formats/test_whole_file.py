"""Files are written whole or not at all: a full disk leaves what was there, and its error names the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.formats.whole_file import whole_file, write_whole

WRITERS = """
import os, resource, sys
from pathlib import Path
from collectives.formats.whole_file import write_whole
from ddp.profiles import load_profile
from sim.trace import Trace
from testbed.output.figure import new_figure, save

trace = Trace()
for number in range(3000):
    trace.span(0, "compute", f"span {number}", number, number + 1)
figure, profile = new_figure(8, 8), load_profile("bert-base")
figure.add_subplot().plot(range(1000))
writers = {
    "a.txt": lambda path: write_whole(path, 70_000 * "x"),
    "a.png": lambda path: save(figure, path),
    "a.svg": lambda path: save(figure, path),
    "a.json": profile.save,
    "trace.json": trace.save,
}
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for name, write in writers.items():
    try:
        write(Path(name))
    except OSError as error:
        assert (error.filename, error.strerror) == (name, "File too large"), (name, error)
    else:
        sys.exit(f"{name} was written")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files there")
def test_a_full_disk_leaves_nothing_behind_and_the_error_names_the_file(tmp_path: Path) -> None:
    for name in ("a.txt", "a.png"):
        (tmp_path / name).write_text("before")

    subprocess.run([sys.executable, "-c", WRITERS], cwd=tmp_path, check=True)

    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert left == {"a.txt": "before", "a.png": "before"}


def test_what_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    def write_half() -> None:
        with whole_file(tmp_path / "a.txt") as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()

    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("of somebody")
    (tmp_path / "a.txt").symlink_to("other")

    write_whole(tmp_path / "a.txt", "ours")

    assert (tmp_path / "other").read_text() == "of somebody"
    assert (tmp_path / "a.txt").read_text() == "ours"


def test_a_device_is_written_itself() -> None:
    write_whole(os.devnull, "text")

    assert not Path(os.devnull).is_file()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "a.txt"

    with pytest.raises(FileNotFoundError) as raised:
        write_whole(path, "text")

    assert raised.value.filename == str(path)
