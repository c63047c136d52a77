"""Result of recording a training script: the profile of its module, a gradient a row."""

from __future__ import annotations

from pathlib import Path

from ddp import Profile
from testbed.output.table import seconds, spell_size
from testbed.result import Result, Rows, Text, asked, found

COLUMNS = (*asked("name"), *found("numel", "dtype", "nbytes", "ready_seconds"))


def profile_result(script: str, recorded: Profile, path: Path) -> Result:
    """Return the profile that was *recorded* of *script*, and what follows its file at *path*."""
    document = recorded.model_dump(by_alias=True, mode="json")
    model = f"{recorded.source}; {recorded.device}"
    answer = (
        f"{recorded.name}: forward {seconds(recorded.forward_seconds)}, backward "
        f"{seconds(recorded.backward_seconds)}, {len(recorded.gradients)} gradients of "
        f"{spell_size(recorded.nbytes)}"
    )
    return Result(
        question=f"What does {script} compute in an iteration?",
        answer=f"{answer}.",
        method="measured",
        model=model,
        rows=Rows(COLUMNS, document["gradients"]),
        body={"output": str(path), "profile": document},
        parts=[
            Text(
                [
                    f"{answer}; {model}.",
                    f"Profile: {path}; next: testbed tune --profile {path} --network NAME --ranks N",
                ]
            )
        ],
    )
