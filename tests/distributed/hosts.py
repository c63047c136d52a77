"""Hosts that are none: processes of one machine that take each other for ranks of several."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from collectives.transports.shared_memory import segment


@contextmanager
def as_if_on_host(number: int) -> Iterator[None]:
    """Have this process say that it is on the host of that *number*, while the body runs."""
    with tempfile.NamedTemporaryFile("w") as said:
        said.write(f"host {number}")
        said.flush()
        with mock.patch.object(segment, "_BOOT", Path(said.name)):
            yield
