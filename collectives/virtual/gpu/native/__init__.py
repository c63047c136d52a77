"""Device guard and hooks of CUDA for builds of torch that have none, as tables of functions of C++."""
