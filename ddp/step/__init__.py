"""A training step in virtual time, by the reducer that trains."""
