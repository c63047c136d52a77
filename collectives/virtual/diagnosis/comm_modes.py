"""Modes of torch that count communication: a note where they see less on rank threads than in processes.

`CommDebugMode` counts what passes torch's dispatcher.  Functional collectives do, as everywhere; but a
process group in Python is called directly, so calls of ``torch.distributed`` and of FSDP2 are not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.notices import Notices

TEXT = (
    "CommDebugMode counts functional collectives alone, such as those of DTensors: calls of process groups "
    "do not pass torch's dispatcher here; for all counts run the script for real: testbed run --processes N"
)
_MODULE = "torch.distributed.tensor.debug._comm_mode"
_DISPATCHER = f"{Path(torch.__file__).parent}/_ops.py"


def note_uncounted(call: WatchedCall) -> None:
    """Give the note, if a mode that counts is active and *call* has passed no dispatcher."""
    module: Any = sys.modules.get(_MODULE)
    if module is None or call.caller.f_code.co_filename == _DISPATCHER:
        return
    if any(isinstance(mode, module.CommDebugMode) for mode in _get_current_dispatch_mode_stack()):
        Notices.of(call.rank_thread.cluster).add(TEXT)
