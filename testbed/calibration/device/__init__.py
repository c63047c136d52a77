"""Calibration of a device: kernels measured over shapes and types, and the device file that follows."""
