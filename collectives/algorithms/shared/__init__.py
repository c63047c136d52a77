"""Structures that several algorithms share: trees, butterflies, tori."""
