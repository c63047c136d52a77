"""Answers over the rows of a plan: what is best, what it loses, what would help, where designs cross."""
