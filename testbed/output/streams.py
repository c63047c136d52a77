"""Standard streams that were closed when the command began: what goes there is lost, and nothing else.

Python has None in their place, which is neither written to nor asked whether it is a terminal; and the next
file that is opened would get their number, so that what a library prints would go into it.
"""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Let standard streams that are closed lead to the null device, for child processes as well."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the number that is free: that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115 (stays open to the end)
