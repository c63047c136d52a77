"""Pairs of scripts, and what the docstring of the wrong half says: class, rank, line, how to run it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from testbed.errors import UsageError

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
WRONG_FOLDERS = (ROOT / "examples" / "mistakes", FOLDER / "wrong")

CLASSES = {
    "call ordering": "some ranks call what others do not, or in another order; ranks wait for each other",
    "parameter matching": "all ranks call, with sizes, types, operations, roots, groups or tags that differ",
    "invalid parameter": "what a single call is given cannot be",
    "request lifecycle": "a result is used before it has come, or nobody ever waits for it",
    "local concurrency": "a buffer is changed while it is being sent or reduced",
    "race on a GPU": "streams, copies and the host use one tensor, and no wait says who is first",
    "message race": "the result depends on whose message comes first",
    "resource leak": "a message that nobody ever receives",
    "data division": "ranks see each other's samples, or the same order again",
    "replicas drift": "the parameters of the ranks do not stay alike",
    "gradient of another batch": "all ranks agree, and train otherwise than one process with the whole batch",
    "files": "ranks write the same file, or read what is not there yet",
    "waste": "the result is right, and takes longer than it must",
}
"""The classes of mistakes, and what each is."""

CHECKS = ("", "replicas", "same", "orders", "races")
"""What a user has to turn on for a mistake to be found."""

EVERY_RANK = "every rank"
NO_LINE = "no line"


@dataclass(frozen=True)
class Pair:
    """A wrong script and a right one.

    Attributes:
        name: of both files.
        says: what is wrong, in a sentence.
        kind: its class, one of `CLASSES`.
        ranks_to_name: which ranks a tool has to name; none where no rank is more at fault than others.
        code_to_name: part of the line that it has to name; empty where no line is at fault.
        num_ranks: as how many ranks to run it.
        check: what has to be turned on for it, one of `CHECKS`.
    """

    name: str
    says: str
    kind: str
    ranks_to_name: frozenset[int]
    code_to_name: str
    num_ranks: int = 4
    check: str = ""

    @cached_property
    def wrong(self) -> Path:
        """The wrong half."""
        return next(
            folder / f"{self.name}.py" for folder in WRONG_FOLDERS if (folder / f"{self.name}.py").exists()
        )

    @property
    def right(self) -> Path:
        """The right half."""
        return FOLDER / "right" / f"{self.name}.py"

    @cached_property
    def needs_gpus(self) -> bool:
        """Whether both halves compute on CUDA devices, which torch over Gloo has none of here."""
        return '"cuda"' in self.wrong.read_text(encoding="utf-8")

    @cached_property
    def lines_to_name(self) -> frozenset[int]:
        """The lines of the wrong half of which a tool has to name one."""
        if not self.code_to_name:
            return frozenset()
        lines = enumerate(self.wrong.read_text(encoding="utf-8").splitlines(), start=1)
        found = {
            number for number, line in lines if self.code_to_name in line and not line.startswith("To name:")
        }
        if not found:
            raise UsageError(f"{self.wrong}: no line holds {self.code_to_name!r}, which its docstring names")
        return frozenset(found)


def all_pairs() -> list[Pair]:
    """Return all pairs, by class and name.

    Raises:
        UsageError: a docstring does not say what it must.
    """
    paths = [path for folder in WRONG_FOLDERS for path in folder.glob("*.py")]
    order = list(CLASSES)
    return sorted(map(read_pair, paths), key=lambda pair: (order.index(pair.kind), pair.name))


def chosen_pairs(names: str | None) -> list[Pair]:
    """Return the pairs of the names in *names*, divided by commas; None: all.

    Raises:
        UsageError: there is no such pair.
    """
    pairs = all_pairs()
    if names is None:
        return pairs
    wanted = {name.strip() for name in names.split(",")}
    unknown = wanted - {pair.name for pair in pairs}
    if unknown:
        known = ", ".join(sorted(pair.name for pair in pairs))
        raise UsageError(f"--only: there is no pair {', '.join(sorted(unknown))}; there are {known}")
    return [pair for pair in pairs if pair.name in wanted]


def read_pair(wrong: Path) -> Pair:
    """Return the pair of which *wrong* is the wrong half, as its docstring says.

    Raises:
        UsageError: it does not say what it must.
    """
    text = ast.get_docstring(ast.parse(wrong.read_text(encoding="utf-8"))) or ""
    says, _, rest = text.partition("\n\n")
    fields = dict(re.findall(r"^(Class|To name|Ranks|Check): (.*)$", rest, re.MULTILINE))
    ranks, _, code = fields.get("To name", "").partition("; ")
    named = re.fullmatch(rf"{EVERY_RANK}|no rank|ranks? (\d+(?:, \d+)*)", ranks)
    check = fields.get("Check", "")

    if not says.startswith("Mistake: ") or named is None or not code:
        raise UsageError(
            f"{wrong}: expected a docstring 'Mistake: …' with a line 'To name: rank 0; CODE', "
            f"'{EVERY_RANK}; CODE' or 'no rank; {NO_LINE}', got {text!r}"
        )
    if fields.get("Class") not in CLASSES or check not in CHECKS:
        raise UsageError(
            f"{wrong}: expected 'Class: …' of {', '.join(CLASSES)}, and 'Check: …' of "
            f"{', '.join(filter(None, CHECKS))} or none, got {text!r}"
        )
    return Pair(
        name=wrong.stem,
        says=" ".join(says.removeprefix("Mistake: ").split()),
        kind=fields["Class"],
        ranks_to_name=frozenset(map(int, named[1].split(", "))) if named[1] else frozenset(),
        code_to_name="" if code == NO_LINE else code,
        num_ranks=int(fields.get("Ranks", 4)),
        check=check,
    )
