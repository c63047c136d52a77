"""Our collectives as the ``torch.distributed`` backend ``testbed``."""

from collectives.torch_backend.creation import TestbedOptions, create
from collectives.torch_backend.group import TestbedProcessGroup

__all__ = ["TestbedOptions", "TestbedProcessGroup", "create"]
