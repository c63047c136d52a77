"""Published measurements, and how far from them the networks that ship and our trainings are."""
