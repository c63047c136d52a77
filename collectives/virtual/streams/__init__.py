"""Streams of GPUs in virtual time: what a host issues, and how a device carries it out.  Open `gpu` first."""

from collectives.virtual.streams.gpu import Gpu, current_gpu
from collectives.virtual.streams.score import GroupCall

__all__ = ["Gpu", "GroupCall", "current_gpu"]
