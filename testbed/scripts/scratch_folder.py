"""Scratch folder: gone when the process that has made it ends, however that ends.

Another process, of this file as a program (``python -I -S scratch_folder.py FOLDER``), waits for the end of
its standard input, which only the maker holds open, and removes the folder.  So this file imports nothing but
the standard library.  Ctrl-C does not reach that process, and it holds no stream of the maker's open.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 10.0
"""For how long it is tried to remove a folder, in which somebody may still write."""


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Yield the path of a new folder, which is removed at the end of the body, or of this process.

    Raises:
        OSError: there is no room for one, or for a process.
    """
    folder = tempfile.mkdtemp(prefix="testbed-")
    try:
        remover = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        yield folder
    finally:
        assert remover.stdin is not None
        remover.stdin.close()
        remover.wait()


def _remove(folder: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.01)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _remove(sys.argv[1])
