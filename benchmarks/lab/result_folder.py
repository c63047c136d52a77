"""A result folder: files, and a list of what each means."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError


class ResultFolder:
    """A folder that can be written to, which is checked before any work is done.

    Files of earlier runs with the same names are replaced; others are left alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, str] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise UsageError(
                f"cannot write results to {path}: {error.strerror}; choose another folder with --output"
            ) from None

    def file(self, name: str, meaning: str) -> Path:
        """Return the path of file *name*, and list it with its *meaning* in the manifest."""
        self.files[name] = meaning
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_json(self, name: str, meaning: str, content: Mapping[str, Any]) -> Path:
        """Write *content* to file *name*, whole or not at all."""
        path = self.file(name, meaning)
        write_whole(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
        return path

    def write_manifest(self, **body: Any) -> Path:
        """Write ``manifest.json``: *body*, and what each file means."""
        return self.write_json("manifest.json", "this list", {**body, "files": self.files})
