"""Time of the kernels that CUDA launches for torch's operations: `arithmetic` first, and `bytes_moved`."""
