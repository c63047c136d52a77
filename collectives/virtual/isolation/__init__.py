"""Isolation of rank threads, each of which finds what a process has once."""
