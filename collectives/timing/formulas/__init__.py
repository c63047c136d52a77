"""Closed forms: times of collectives without a run, by NCCL's constants, by switches, by measurements."""
