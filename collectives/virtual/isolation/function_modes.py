"""Function modes that a script leaves on a rank's thread, such as a default device."""

from __future__ import annotations

from torch._C import _len_torch_function_stack
from torch.overrides import _pop_mode


def take_function_modes() -> None:
    """Take all of them from this thread at its end.

    What is left would go after the thread has ended for Python, and take down a process that ends then.
    """
    for _ in range(_len_torch_function_stack()):
        _pop_mode()
