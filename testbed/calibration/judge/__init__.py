"""Predictions held against measurements: tables of collectives, and training steps on one rank."""
