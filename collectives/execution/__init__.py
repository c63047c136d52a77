"""Execution of a program, step by step, over any transport; without torch, and without waiting itself."""
