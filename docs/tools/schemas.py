"""JSON Schemas of the files that users write, for editors, and of results: ``docs/*.schema.json``.

python -m docs.tools.schemas
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collectives.catalogue.measured_times import TimesDocument
from collectives.formats.whole_file import write_whole
from ddp.profiles import Profile
from docs.tools import result_schema
from sim.files.device_file import DeviceTable
from sim.topology.files.schema import json_schema
from testbed.planning import question

DOCS = Path(__file__).parents[1]


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each kind of file, by its name."""
    return {
        "network": json_schema(),
        "device": {"title": "Device", **DeviceTable.model_json_schema(by_alias=True)},
        "profile": Profile.model_json_schema(by_alias=True),
        "measured_times": TimesDocument.model_json_schema(by_alias=True),
        "question": question.json_schema(),
        "result": result_schema.schema(),
    }


def main() -> None:
    """Write them."""
    for name, schema in schemas().items():
        write_whole(DOCS / f"{name}.schema.json", json.dumps(schema, indent=1) + "\n")


if __name__ == "__main__":
    main()
