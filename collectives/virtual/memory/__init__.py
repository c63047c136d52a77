"""Memory of the ranks' devices: every storage from birth to death, what holds it, and whether it fits."""
