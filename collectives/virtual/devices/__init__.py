"""Devices called cuda, which are the CPU."""
