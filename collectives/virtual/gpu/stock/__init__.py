"""Stock systems of torch on virtual CUDA tensors: what of each has to be replaced, and why.

Most of it runs as it is.  What does not looks behind the dispatcher: at a tensor's memory or class, at a
process for each rank, or at an operation that only a build with CUDA has.

    ddp             DistributedDataParallel, SyncBatchNorm and ZeroRedundancyOptimizer
    dtensor         DTensor: tensor and sequence parallelism, its random numbers
    fully_sharded   FSDP1 and FSDP2
    cuda_only       operations that have kernels for CUDA alone, LSTM and GRU among them
"""
