"""Calibration: constants of a network and of the software on it, found by measurement."""
