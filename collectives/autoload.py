"""Registration of the backend, called at the end of every ``import torch`` of the environment.

It only leaves the name ``testbed`` and a function with torch, so that
``init_process_group("testbed")`` works in a script that imports nothing of ours.  It needs the
package itself and nothing that is slow to import, and never raises: a fault here would take
``import torch`` away from every program of the environment.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

BACKEND = "testbed"


def register() -> None:
    """Make ``testbed`` known to ``torch.distributed``, if this torch has it; never raises."""
    with contextlib.suppress(Exception):
        distributed = sys.modules["torch.distributed"]
        if distributed.is_available() and BACKEND not in distributed.Backend.backend_list:
            distributed.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> Any:
    """Create the process group, when a script first asks for one."""
    from collectives.torch_backend import create

    return create(options, backend_options)
