"""Our collectives as the ``torch.distributed`` backend ``testbed``."""

from collectives.torch_backend.group import TestbedOptions, TestbedProcessGroup, create

__all__ = ["TestbedOptions", "TestbedProcessGroup", "create"]
