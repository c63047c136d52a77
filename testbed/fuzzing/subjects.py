"""Subjects of a campaign: a script, or programs; each can be tried with seeds, and made smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from testbed.fuzzing import programs, scripts
from testbed.fuzzing.campaign import Batch, Judged
from testbed.fuzzing.draw import Space
from testbed.fuzzing.program_draw import ProgramSpace
from testbed.fuzzing.reproduction import program_test, script_test
from testbed.fuzzing.shrinking import shrink, smaller_programs, smaller_runs
from testbed.fuzzing.trial import MODULES


@dataclass(frozen=True)
class Shrunk:
    """The smallest violation that was found from another one.

    Attributes:
        judged: the draw, and what is wrong with it.
        test: repeats it under pytest.
    """

    judged: Judged
    test: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {**self.judged.to_json(), "test": self.test}


class Subject(Protocol):
    """What is tried."""

    @property
    def batch_size(self) -> int:
        """How many runs are worth handing to another process."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What a process imports that judges runs."""

    def judge_batch(self, seeds: Sequence[int]) -> Batch:
        """Carry out and judge what *seeds* mean."""

    def shrunk(self, judged: Judged) -> Shrunk:
        """Return the smallest violation found from *judged* on."""


@dataclass(frozen=True)
class Scripts:
    """Runs of a script.

    Attributes:
        space: what they are drawn from.
    """

    space: Space
    batch_size: int = 10
    modules: tuple[str, ...] = (scripts.__name__, *MODULES)

    def judge_batch(self, seeds: Sequence[int]) -> Batch:
        """Carry out and judge what *seeds* mean."""
        return scripts.judge_seeds(seeds, self.space)

    def shrunk(self, judged: Judged) -> Shrunk:
        """Return the smallest violation found from *judged* on."""
        smallest = judged
        if scripts.judge(judged.draw, self.space).violations:
            judge = partial(scripts.judge_smaller, space=self.space)
            smallest = shrink(judged, partial(smaller_runs, space=self.space), judge, attempts=60)
        conditions = scripts.conditions_of(smallest.draw, self.space)
        return Shrunk(smallest, script_test(smallest, self.space, conditions))


@dataclass(frozen=True)
class Programs:
    """Runs of programs.

    Attributes:
        space: what they are drawn from.
    """

    space: ProgramSpace
    batch_size: int = 500
    modules: tuple[str, ...] = (programs.__name__, "testbed.fuzzing.program_trial")

    def judge_batch(self, seeds: Sequence[int]) -> Batch:
        """Carry out and judge what *seeds* mean."""
        return programs.judge_programs(seeds, self.space)

    def shrunk(self, judged: Judged) -> Shrunk:
        """Return the smallest violation found from *judged* on."""
        candidates = partial(smaller_programs, ranks=self.space.ranks)
        smallest = shrink(judged, candidates, programs.judge_program)
        conditions = programs.conditions_of(smallest.draw)
        return Shrunk(smallest, program_test(smallest, conditions))
