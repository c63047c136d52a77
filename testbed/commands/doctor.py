"""``testbed doctor``: what the installed torch lacks of what the testbed uses, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.options.command import command
from testbed.output.table import counted
from testbed.result import Grid, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from testbed.studies.torch_names import Use

EXAMPLES = """\b
Examples:
  testbed doctor
  testbed doctor --json
"""
MODEL = (
    "names read in the sources (imports, what follows modules and classes of torch, attributes that a run "
    "replaces) and looked up in this torch; attributes of instances, and names that loops make, are not seen"
)
COLUMNS = (*asked("name", "path", "line", "purpose", "is_private"), *found("is_there"))


@command
def doctor() -> Result:
    """Show what the installed torch lacks of what the testbed uses of it, and what that costs.

    Virtual ranks replace and read names of torch of which it promises nothing, so another version may lack
    some. Each is looked up, and a tensor is put on a virtual CUDA device. The exit code is 1 where something
    is missing.
    """
    import torch

    from testbed.studies.torch_names import uses, why_no_virtual_device

    used, no_device = uses(), why_no_virtual_device()
    missing = [use for use in used if not use.is_there]
    names = {use.name for use in used}
    private = counted(len({use.name for use in used if use.is_private}), "private name")
    lacks = len({use.name for use in missing}) or "none"
    answer = (
        f"torch {torch.__version__} lacks {lacks} of the {len(names)} names that the testbed uses, {private} "
        f"among them; virtual CUDA devices {'work' if no_device is None else 'do not work'} with it."
    )
    return Result(
        question="What does this torch lack of what the testbed uses?",
        answer=answer,
        method="measured",
        model=MODEL,
        rows=Rows.of(COLUMNS, used),
        body={"torch": torch.__version__, "missing": len(missing), "no_virtual_device": no_device},
        parts=[
            Text([answer], wrap=True),
            *([_lacking(missing)] if missing else []),
            Text(
                [] if no_device is None else [f"on a virtual device: {no_device}"], tone="warning", wrap=True
            ),
            quiet(f"{MODEL}."),
        ],
        failure=None if not missing and no_device is None else answer,
    )


def _lacking(missing: Sequence[Use]) -> Grid:
    """Return what is missing, and for what it is used."""
    rows = [(use.name, f"{use.path}:{use.line}", use.purpose) for use in missing]
    return Grid(("missing", "used in", "which is about"), rows, text_columns=3)
