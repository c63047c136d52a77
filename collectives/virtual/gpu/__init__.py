"""Virtual GPUs of a run: tensors that are on CUDA for torch, on a machine that has none.

They are torch's FakeTensors: they have shapes, and an operation on them computes shapes.  In a run with data
each has a tensor of the CPU for its value, which the operation computes, too.  Either way an operation costs
its rank what the device would take: kernels on streams (`collectives.virtual.streams`).

    virtual_cuda       the GPUs of one run, and which ranks have them (open first)
    installation       what is switched on for them, and put back at the end
    instant_execution  operations on it: results by values alone, and where kernels' processor time counts
    results            what ranks leave after the run
    dispatch_mode      hands each operation of a rank's thread to who carries it out
    charged_execution  operations on a GPU that is modelled: result, value and cost
    values             tensors of the CPU that stand for data
    computing          values of results
    rules              transfers between host and device, and answers to the host
    conversion         modules that go to a device, or come back
    copies             pinned memory, and what the host waits for
    routing            which experts tokens go to, in a run without data
    data_dependent     operations whose result depends on data: answered, or refused with the script's line
    cpu_kernels        kernels of CUDA alone, by those of the CPU: norms in 16 bits, attention with dropout
    batch_norm         SyncBatchNorm, by formulas
    recurrent_cells    those of recurrent layers
    persistence        saving and loading
    shapes             results without data, and what is kept of them
    attention          scaled_dot_product_attention, by the fused kernels that CUDA would take
    flexible_attention compiled flex_attention, by the blocks of its mask
    accelerator        the devices of one rank, as torch.cuda tells of them; a GPU without a model
    device_random      the generator of a device
    functions          torch.cuda and torch.accelerator on rank threads, and what brings devices in
    replacements       attributes of torch that look at a device's memory, or at the build
    native             what C++ asks for: a device guard and hooks of CUDA
"""
