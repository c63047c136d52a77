"""Goodput of a long training: what failures, checkpoints and waiting leave of its time.

policy     what fails, recovery, checkpoints, degraded nodes
expected   closed form (Young, Daly)            simulated  events, from seeds
study      both, the best interval, and what would help
"""
