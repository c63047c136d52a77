"""Goodput of a long training: what failures, checkpoints and waiting leave of its time.

parts      what fails, and how often            policy     recovery, checkpoints, degraded nodes
expected   closed form (Young, Daly)            simulated  events, from seeds
study      both, the best interval, and what would help
"""
