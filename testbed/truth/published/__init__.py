"""Published measurements of real machines, and constants fitted to such tables."""
