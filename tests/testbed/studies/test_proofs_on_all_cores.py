"""Many proofs are made on all cores, and are what they are on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from collectives import resolve_algorithm
from testbed import tasks
from testbed.studies import proofs


def test_outcomes_come_in_the_order_of_the_algorithms_whichever_is_done_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def last_first(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        return map(function, reversed(list(items)))

    chosen = [resolve_algorithm("direct", collective) for collective in ("gather", "scatter")]
    given = chosen, (2, 3), "2-3", lambda *_: None
    alone = proofs.prove_wholly(*given)
    monkeypatch.setattr(proofs, "MANY_PROOFS", 1)
    monkeypatch.setattr(tasks, "results", last_first)

    assert proofs.prove_wholly(*given) == alone
