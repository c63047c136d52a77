"""Options that several commands share: how they are declared and read."""

FORMERLY = {"losses": "inefficiencies"}
"""Older names of assumptions, in files and as options."""

ALSO = {**FORMERLY, "sizes": "nbytes", "save": "output", "out": "output", "svg": "plot", "timeline": "plot"}
"""Other words for options, which all commands take, from the shell and from Python."""
