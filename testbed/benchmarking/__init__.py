"""Measurements of collectives, real and simulated, in the columns of nccl-tests."""
