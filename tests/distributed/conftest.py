"""The pool of worker processes, shared by all several-process tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.pool import WorkerPool


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Up to four reusable processes over Gloo; see `tests.distributed.pool`."""
    with WorkerPool() as workers:
        yield workers
