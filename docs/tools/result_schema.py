"""JSON Schema of results: what all have in common, and of each command the columns of its rows.

The columns are those with which results are made (`testbed.result.Column`): each says its unit, and whether
it was asked, was found, or says how that was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.commands import doctor, env, export, profile
from testbed.fuzzing import campaign
from testbed.output.folder import SCHEMA
from testbed.report import (
    bench,
    calibration,
    compared,
    goodput,
    network,
    planning,
    proofs,
    sameness,
    scaling,
    schedule,
    simulation,
    synthesized,
    tuning,
    validation,
    virtual,
)
from testbed.result import Column
from testbed.scripts import every_order
from testbed.studies import carriers

ROWS: dict[str, Sequence[Column]] = {
    "bench": bench.COLUMNS,
    "calibrate": calibration.COLUMNS,
    "calibrate --from": calibration.CURVES,
    "calibrate --device": calibration.KERNELS,
    "compare": compared.DIFFERENCES,
    "doctor": doctor.COLUMNS,
    "env": env.COLUMNS,
    "export": export.COLUMNS,
    "fuzz": campaign.COLUMNS,
    "network NAME": network.LINKS,
    "network": network.NETWORKS,
    "plan": planning.COLUMNS,
    "plan --goodput": goodput.COLUMNS,
    "profile": profile.COLUMNS,
    "run": virtual.ITERATIONS,
    "run --orders": every_order.COLUMNS,
    "same": sameness.COLUMNS,
    "scale": scaling.COLUMNS,
    "show": schedule.COLUMNS,
    "simulate": simulation.COLUMNS,
    "synthesize": synthesized.COLUMNS,
    "tune": tuning.COLUMNS,
    "validate --table": validation.COLUMNS,
    "validate --device": validation.STEP_COLUMNS,
    "verify": proofs.COLUMNS,
}
"""Columns of the chief rows of each command, or of it with an option."""

ROLES = {"asked": "asked", "found": "found", "how": "how it was found"}
TEXT = {"type": "string"}
NAMES = {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}}
FRAME: dict[str, Any] = {
    "schema": {"const": SCHEMA},
    "command": {**TEXT, "description": "what repeats it"},
    "versions": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    "method": {"type": ["string", "array"], "items": TEXT, "description": "how figures were got"},
    "model": {**TEXT, "description": "what figures assume"},
    "seed": {"type": ["integer", "null"], "description": "of every random choice"},
    "topologies": {"type": "object", "additionalProperties": TEXT, "description": "digests of networks"},
    "question": TEXT,
    "answer": {**TEXT, "description": "in a sentence"},
    "asked": {**NAMES, "description": "columns of each table that belong to the question; of '', fields"},
    "how": {**NAMES, "description": "columns that say how the answer was found: an engine, a model"},
    "units": {"type": "object", "additionalProperties": TEXT, "description": "of columns: s, B, B/s, 1"},
    "assumptions": {"type": "object", "description": "as --assumptions FILE takes them again"},
    "rows": {
        "type": "array",
        "items": {"type": "object"},
        "description": "$defs says which columns a command has",
    },
}
"""Fields of every result; a command has further ones."""

TABLES: dict[str, Sequence[Column]] = {
    "lost_to": virtual.TABLES["lost_to"],
    "not_possible": scaling.NOT_POSSIBLE,
    "profiles": scaling.OF_PROFILES,
    "carriers": carriers.COLUMNS,
}
"""Columns of further tables, by their fields."""


def schema() -> dict[str, Any]:
    """Return the schema: of every result and its tables, and by the names of commands of their rows."""
    tables = {name: {"type": "array", "items": _row(columns)} for name, columns in TABLES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Result",
        "type": "object",
        "properties": FRAME | tables,
        "required": list(FRAME),
        "$defs": {name: _row(columns) for name, columns in ROWS.items()},
    }


def _row(columns: Sequence[Column]) -> dict[str, Any]:
    """Return the schema of a row, which may leave columns out."""
    return {
        "type": "object",
        "properties": {own.name: _field(own) for own in columns},
        "additionalProperties": False,
    }


def _field(column: Column) -> dict[str, Any]:
    """Return the schema of a field: where it has a unit a number, or several by place or by name."""
    unit = "" if column.unit in ("", "1") else f", in {column.unit}"
    said: dict[str, Any] = {"description": f"{ROLES[column.role]}{unit}"}
    if column.unit:
        number = {"type": ["number", "null"]}
        said |= {"unit": column.unit, "type": ["number", "array", "object", "null"]}
        said |= {"items": number, "additionalProperties": number}
    return said
