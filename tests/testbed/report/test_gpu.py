"""Report of ranks on GPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.report.gpu import exposed_facts


@pytest.mark.parametrize(
    ("host", "calls", "is_limit"), [(0.3, 0.1, True), (0.2, 0.0, False), (0.3, 0.4, False)]
)
def test_the_host_is_the_limit_where_most_waiting_is_for_it_and_that_is_much(
    host: float, calls: float, is_limit: bool
) -> None:
    spent: Any = SimpleNamespace(seconds=1.0, host_seconds=host, exposed_seconds=host + calls)
    report: Any = SimpleNamespace(exposed_by=[SimpleNamespace(group="all ranks", seconds=calls)])

    facts = dict(exposed_facts(report, spent))

    assert ("limit" in facts) is is_limit
    assert "other" not in facts
