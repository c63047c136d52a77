"""``testbed profile``: record what a training script computes, for predictions."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddp import Profile, record
from testbed.errors import UsageError
from testbed.options.arguments import MAX_COUNT, ScriptArguments
from testbed.options.command import Outputs, command
from testbed.output.folder import check_writable
from testbed.output.table import seconds, spell_size
from testbed.result import Interrupted, Result, Rows, Text, asked, found
from testbed.scripts.script import ScriptError, observe_script

if TYPE_CHECKING:
    pass

EXAMPLES = """\b
Examples:
  testbed profile train.py --epochs 1
  testbed profile --output mine.json --iterations 20 train.py --batch-size 32
  torchrun --nproc-per-node 4 --no-python testbed profile --each-rank train.py
"""

COLUMNS = (*asked("name"), *found("numel", "dtype", "nbytes", "ready_seconds"))


@command
def profile(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT")],
    arguments: ScriptArguments = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    iterations: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_COUNT)] = 9,
    warmup: Annotated[int, typer.Option(metavar="N", min=0, max=MAX_COUNT)] = 2,
    module: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    each_rank: Annotated[bool, typer.Option("--each-rank")] = False,
    *,
    outputs: Outputs,
) -> Result | None:
    """Record the profile of the module that a script trains.

    The script runs unmodified, alone or under torchrun, with our DDP, torch's, or a bare module, on CPU or
    GPU. Options come before SCRIPT. Ctrl-C keeps what was recorded.

    Args:
        script: An ordinary training script.
        output: The profile; by default SCRIPT-profile.json here.
        iterations: Backward passes to record; then the script is ended.
        warmup: Passes before them.
        module: Which module, where the script trains several.
        each_rank: Under torchrun: every rank writes, FILE-rankN.json.
    """
    rank = int(os.environ.get("RANK", "0"))
    path = output or Path(f"{script.stem}-profile.json")
    if each_rank:
        path = path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
    writes = each_rank or rank == 0
    if writes:
        check_writable(path)

    recording = record(module=module, num_iterations=iterations, num_warmup=warmup)
    failure: ScriptError | None = None
    interrupted: KeyboardInterrupt | None = None
    with contextlib.redirect_stdout(sys.stderr) if outputs.as_json else contextlib.nullcontext():
        try:
            observe_script(script, arguments or [], recording)
        except ScriptError as error:
            failure = error
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt

    if not (writes and recording.trained):
        if failure is not None:
            raise failure
        if interrupted is not None:
            raise interrupted
        if not recording.trained:
            raise UsageError(
                f"{script} trained no module: expected one that is called with gradients enabled, and "
                "backward() on a loss of what it returns"
            )
        return None  # rank 0 has the result
    if module is None and len(recording.trained) > 1:
        listed = ", ".join(f"{name} ({count} passes)" for name, count in recording.trained.items())
        raise UsageError(f"{script} trains several modules: {listed}; say which with --module NAME")
    recorded = recording.profile
    recorded.save(path)
    result = profile_result(str(script), recorded, path)
    if interrupted is not None:
        raise Interrupted(result, type(interrupted)("what was recorded is kept"))
    return result if failure is None else replace(result, failure=str(failure), exit_code=failure.exit_code)


def profile_result(script: str, recorded: Profile, path: Path) -> Result:
    """Return the profile that was *recorded* of *script*, and what follows its file at *path*."""
    document = recorded.model_dump(by_alias=True, mode="json")
    model = f"{recorded.source}; {recorded.device}"
    answer = (
        f"{recorded.name}: forward {seconds(recorded.forward_seconds)}, backward "
        f"{seconds(recorded.backward_seconds)}, {len(recorded.gradients)} gradients of "
        f"{spell_size(recorded.nbytes)}"
    )
    then = f"testbed tune --profile {path} --network NAME --ranks N"
    return Result(
        question=f"What does {script} compute in an iteration?",
        answer=f"{answer}.",
        method="measured",
        model=model,
        rows=Rows(COLUMNS, document["gradients"]),
        body={"output": str(path), "profile": document},
        parts=[Text([f"{answer}; {model}.", f"Profile: {path}; next: {then}"])],
    )
