"""Devices of the ranks: what a script does on CUDA devices is done on the CPU."""
