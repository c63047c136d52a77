"""Collectives on tensors: our programs, the vendor's, or whichever is faster."""
