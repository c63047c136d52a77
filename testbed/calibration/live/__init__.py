"""A network and the software on it, calibrated by processes that measure."""
