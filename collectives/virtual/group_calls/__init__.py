"""Timing of the calls of groups by sizes alone; open `calls` first."""
