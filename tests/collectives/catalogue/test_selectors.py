from __future__ import annotations

from pathlib import Path

import pytest

from collectives import UnknownAlgorithmError
from collectives.catalogue.selectors import Auto, parse_auto


def test_auto_takes_a_table_or_a_reduction_bandwidth() -> None:
    assert parse_auto("ring") is None
    assert parse_auto({"all_gather": "auto"}) is None
    assert parse_auto("auto") == Auto()
    assert parse_auto("auto:table=a/b.json") == Auto(table=Path("a/b.json"))
    assert parse_auto("auto:reduction_bandwidth=50GB/s") == Auto(reduction_bandwidth="50GB/s")
    with pytest.raises(UnknownAlgorithmError, match="expected auto, auto:table=FILE"):
        parse_auto("auto:speed=1")
