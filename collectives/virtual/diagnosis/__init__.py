"""Diagnosis of a run, in words: who waits where, and for whom, and what else looks wrong."""
