"""The JSON Schemas of the documentation are those of what reads the files."""

from __future__ import annotations

import json

import pytest

from docs.tools.schemas import DOCS, schemas


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_that_of_its_model(name: str) -> None:
    """To renew them: ``python -m docs.tools.schemas``."""
    assert json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8")) == schemas()[name]
