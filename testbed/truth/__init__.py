"""Predictions held against measurements: calibration, validation, and the claims of textbooks."""
