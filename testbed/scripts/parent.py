"""Parent: the end of a process together with the one that has started it, however that ends.

Linux kills a process that has asked for it when its parent ends; one that asked too late sees that it has
another parent by then.  Strictly, it is the thread that has started the process which counts as its parent.

Also a program, which becomes another one that ends so: ``python -I -S parent.py PID COMMAND [ARGUMENT]…``; it
therefore imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """See to it that this process is killed when its parent ends; end it if that has happened already.

    Args:
        parent: number of the process that has started this one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
