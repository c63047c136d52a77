"""Goodput of a long training: what failures, checkpoints and waiting leave of its time.

policy     what fails, recovery, checkpoints, degraded nodes
losses     closed form (Young, Daly), and events of a run, from seeds
study      both, the best interval, and what would help
"""
