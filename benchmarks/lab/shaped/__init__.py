"""Shaped networks: hosts, switches and links of a network file, built for real out of what the kernel has.

Each host is a network namespace, each switch a bridge, each link a pair of virtual Ethernet devices whose
rate a token bucket holds down.  What is predicted for the file can be measured there.
"""
