"""Report of ranks on GPUs."""

from types import SimpleNamespace

import pytest

from collectives.virtual.spent import CAUSES, HostSpent, Lost
from testbed.report.gpu import exposed_facts


def facts_of(host, calls, *issued):
    spent = SimpleNamespace(seconds=1.0)
    lost = [Lost(cause, {"host": host, "bytes": calls}.get(cause, 0.0)) for cause in CAUSES]
    waited = [SimpleNamespace(group="all ranks", seconds=calls)]
    report = SimpleNamespace(exposed_by=waited, issued_by=issued, lost_to=lost)
    return dict(exposed_facts(report, spent))


@pytest.mark.parametrize(
    ("host", "calls", "busy", "is_limit"),
    [(0.3, 0.1, 0.4, True), (0.2, 0.0, 0.4, False), (0.3, 0.4, 0.6, False), (0.3, 0.4, 0.95, True)],
)
def test_the_host_is_the_limit_where_most_waiting_is_for_it_and_that_is_much_or_it_is_always_busy(
    host, calls, busy, is_limit
):
    facts = facts_of(host, calls, HostSpent("operations", 1000, busy))

    assert ("limit" in facts) is is_limit


@pytest.mark.parametrize(
    ("what", "helps"),
    [("operations", "launches"), ("boundaries", "less Python"), ("collectives", "larger collectives")],
)
def test_what_helps_is_said_by_what_takes_most_of_the_host(what, helps):
    facts = facts_of(0.9, 0.0, HostSpent(what, 1000, 0.8), HostSpent("none", 0, 0.0))

    assert facts["limit"].startswith(f"the host: 1,000 {what}")
    assert helps in facts["limit"].partition(";")[2]
