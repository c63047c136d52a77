"""Algorithms by name: resolved, selected by size, verified."""
