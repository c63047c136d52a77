"""Options that several commands share: how they are declared and read."""

FORMERLY = {"losses": "inefficiencies"}
"""Older names of assumptions, in files and as options."""
