"""Names and devices of a process group, as torch asks for them in Python and from C++."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class NamedProcessGroup(dist.ProcessGroup):
    """A process group that keeps its own name, as it has no backend in C++ to keep it.

    Attributes:
        backend_asked_for: the backend that the script has named for it; empty where nobody knows.
        options: those that the script has given it; None where nobody knows.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)  # type: ignore[call-arg]
        self._name = self._description = "undefined"
        self.backend_asked_for = ""
        self.options: Any = None

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name of the backend, as C++ asks for it."""
        return "testbed"

    def name(self) -> str:
        """Return the name of the backend."""
        return "testbed"

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Keep the group's name, which torch chooses."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """Return the group's name."""
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Keep the group's description."""
        self._description = description

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return the group's description."""
        return self._description

    _set_group_name = setGroupName
    _set_group_desc = setGroupDesc  # type: ignore[assignment]
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        """The kinds of devices whose tensors it moves."""
        devices = [torch.device("cpu")]
        if torch.cuda.is_available():
            devices.append(torch.device("cuda"))
        return devices

    def _get_backend(self, device: torch.device) -> NamedProcessGroup:  # type: ignore[override]
        """Return itself, as it is the backend of every device."""
        return self
