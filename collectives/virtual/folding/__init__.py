"""Folding of ranks that do the same: one thread says what all of them do."""
