"""Kernels that CUDA launches for torch's operations, and how long each takes on a device.

launch         KernelLaunch, one kernel
products       matrix products, by tiles and waves
convolutions   the products that a convolution is
attention      fused attention, forward and backward
multi_tensor   foreach operations and fused optimizers, many tensors a kernel
"""
