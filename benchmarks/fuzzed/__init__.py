"""Scripts that `python -m benchmarks.fuzzing` tries beside the examples."""
