"""Defaults of a project: the table ``[tool.testbed]`` of its ``pyproject.toml``, below the command line.

    [tool.testbed]
    ranks = 4
    network = "dgx-h100"
    compute = "h100"
    seeds = 20

The nearest ``pyproject.toml`` counts, from the working directory up, or from pytest's root.  The commands
``run``, ``same`` and ``fuzz`` take what they have options for; tests, too (`testbed.testing.VirtualCluster`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.options.arguments import MAX_COUNT, MAX_RANKS, parse_compute_model

if TYPE_CHECKING:
    from testbed.result import Result

FILE, TABLE = "pyproject.toml", "tool.testbed"
NUMBERS = {"ranks": (1, MAX_RANKS), "seeds": (1, MAX_COUNT)}
KEYS = ("ranks", "network", "compute", "seeds")

OF_COMMANDS: Mapping[str, Collection[str]] = {
    "run": ("ranks", "network", "compute"),
    "same": ("ranks", "network"),
    "fuzz": KEYS,
}
MEANINGLESS: Mapping[str, Collection[str]] = {"processes": KEYS, "orders": ("compute",), "seed": ("seeds",)}
"""Options with which defaults mean nothing."""


@dataclass(frozen=True)
class Project:
    """What a project says.

    Attributes:
        path: of its file.
        values: by key.
    """

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, folder: Path) -> Project:
        """Return what the nearest file says, from *folder* up; nothing where there is none.

        Raises:
            UsageError: it has another key, or a value that cannot be; names the file and the key.
        """
        places = (place / FILE for place in (folder, *folder.parents))
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            return cls()
        try:
            tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{path}: {error}") from None
        if not isinstance(tools, dict):
            raise UsageError(f"{path}: tool: expected a table, got {tools!r:.80}")
        table = tools.get("testbed", {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {TABLE}: expected a table, got {table!r:.80}")
        return cls(path, {key: _checked(path, key, value) for key, value in table.items()})

    def of_command(self, name: str | None, given: Collection[str]) -> dict[str, Any]:
        """Return defaults for options of the command *name*, some of whose options were *given*."""
        without = {key for option in given for key in MEANINGLESS.get(option, ())}
        own = {key: value for key, value in self.values.items() if key in OF_COMMANDS.get(name or "", ())}
        own = {key: value for key, value in own.items() if key not in without}
        if name == "run" or not own:
            return own
        if (ranks := own.get("ranks")) is not None:
            is_one = ranks == 1 or "vary" in given
            own["ranks"] = str(ranks) if is_one else f"1,{ranks}" if name == "same" else f"2-{ranks}"
        repeated = () if name == "same" else ("network", "compute")
        return {key: [value] if key in repeated else value for key, value in own.items()}

    def of_tests(self, *, in_every_order: bool, has_ranks: bool) -> dict[str, Any]:
        """Return defaults for ranks of a test, which knows its number of ranks if it *has_ranks*."""
        left_out = {*(("compute", "seeds") if in_every_order else ()), *(("ranks",) if has_ranks else ())}
        return {key: value for key, value in self.values.items() if key not in left_out}

    def noted(self, result: Result) -> Result:
        """Return *result* with a note of what was taken from here."""
        if not self.values:
            return result
        from testbed.result import quiet

        said = ", ".join(f"{key} {value}" for key, value in self.values.items())
        body = {**result.body, "project": {"file": str(self.path), **self.values}}
        return replace(result, body=body, parts=[*result.parts, quiet(f"From {self.path}: {said}.")])


TAKEN: ContextVar[Project] = ContextVar("TAKEN", default=Project())  # noqa: B039
"""What the command that is called takes from its project."""


def take(command: str | None, given: Collection[str]) -> dict[str, Any]:
    """Return the defaults of *command*, of which some options were *given*, and note what is taken.

    Raises:
        UsageError: see `Project.at`.
    """
    project = Project.at(Path.cwd()) if command in OF_COMMANDS else Project()
    taken = project.of_command(command, given)
    TAKEN.set(replace(project, values={key: project.values[key] for key in taken if key not in given}))
    return taken


def _checked(path: Path, key: str, value: Any) -> Any:
    """Return the *value* of *key*, a file of a network or a device by its path."""
    what = f"{path}: {TABLE}.{key}"
    if key not in KEYS:
        raise UsageError(f"{what}: there is no such key; expected {', '.join(KEYS)}")
    if key in NUMBERS:
        least, most = NUMBERS[key]
        if type(value) is not int or not least <= value <= most:
            raise UsageError(f"{what}: expected a number from {least} to {most}, got {value!r:.80}")
        return value
    if not isinstance(value, str):
        raise UsageError(f"{what}: expected a name or the path of a file, got {value!r:.80}")
    from collectives.errors import CollectiveError
    from sim import load_network
    from sim.errors import SimulationError

    try:
        file = path.parent / value
        value = str(file) if file.is_file() else value
        load_network(value) if key == "network" else parse_compute_model(value)
    except (CollectiveError, OSError, SimulationError, ValueError) as error:
        raise UsageError(f"{what}: {error}") from None
    return value
