"""Door of a process group: how tensors of a script become those that communicators work on, and back.

Most are what they are.  A member of a group whose tensors have no memory of their own, such as a rank that
computes on a GPU that does not exist, gives communicators what is in them, where that is known: plain tensors
of the CPU, or of the device ``meta`` where it is not.
"""

from __future__ import annotations

from typing import Protocol

import torch


class Door(Protocol):
    """Stands between the tensors of a script and those of communicators."""

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what is in *tensor*; what is written there is written into *tensor*, if it is done with."""

    def wanted(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return where the result for *tensor* is to be put, whatever is in it now."""

    def done(self, tensor: torch.Tensor, plain: torch.Tensor, is_known: bool) -> None:
        """Note that *plain*, which stands for *tensor*, has the result, or is not known."""

    def made(self, plain: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return a new tensor of the script on the device of *like*, for which *plain* stands from now on."""


class OpenDoor:
    """Every tensor is what it is; a `Door`."""

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return *tensor*."""
        return tensor

    def wanted(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return *tensor*."""
        return tensor

    def done(self, tensor: torch.Tensor, plain: torch.Tensor, is_known: bool) -> None:
        """Do nothing."""

    def made(self, plain: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return *plain*."""
        return plain
