"""Buckets of gradients: their memory, and what hooks do with them."""
