"""Closed forms and bounds: times of collectives without a run."""
