"""Computation held against measurements: training steps of models on one rank."""
