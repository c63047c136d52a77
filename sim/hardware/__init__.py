"""Hardware: the device that a rank computes on, and what NCCL's own model must know of the machines.

device    Device, a roofline and what a GPU says more
kernels   KernelTable, what of a device's peaks kernels of a shape reach
nccl      Hardware, Channels: what a network of links does not say

No number is of this machine: devices and presets state them, with their sources.
"""

from sim.hardware.device import AttentionRates, Device
from sim.hardware.kernels import KernelTable
from sim.hardware.nccl import Channels, Cpu, Generation, Hardware, IntraLink

__all__ = [
    "AttentionRates",
    "Channels",
    "Cpu",
    "Device",
    "Generation",
    "Hardware",
    "IntraLink",
    "KernelTable",
]
