"""Descriptions and drawings of the shipped algorithms."""
