"""What went wrong in a run, in words: who waits where, and for whom."""
