"""Hardware: the device that a rank computes on, and what NCCL's own model must know of the machines.

device     Device, a roofline and what a GPU says more
issued     Issued, what takes the time of a GPU's host
products   ProductConstants, how matrix products run by their shape
attention  AttentionRates, how a family of fused attention kernels runs
experts    ExpertConstants, how layers of routed experts run
kernels    KernelTable, what of a device's peaks kernels of a shape reach
nccl       Hardware, Channels: what a network of links does not say

No number is of this machine: devices and presets state them, with their sources.
"""

from sim.hardware.attention import AttentionRates
from sim.hardware.device import Device
from sim.hardware.experts import ExpertConstants
from sim.hardware.issued import NOTHING, Issued
from sim.hardware.kernels import KernelTable
from sim.hardware.nccl import Channels, Cpu, Generation, Hardware, IntraLink
from sim.hardware.products import Clocks, ProductConstants

__all__ = [
    "NOTHING",
    "AttentionRates",
    "Channels",
    "Clocks",
    "Cpu",
    "Device",
    "ExpertConstants",
    "Generation",
    "Hardware",
    "IntraLink",
    "Issued",
    "KernelTable",
    "ProductConstants",
]
