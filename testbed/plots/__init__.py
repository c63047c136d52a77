"""Plots of reports."""
