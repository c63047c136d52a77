"""Tables of measured collectives, and constants fitted to them."""
