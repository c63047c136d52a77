"""Observation of passes: spans on a timeline, stamps of iterations, checks of gradients."""
