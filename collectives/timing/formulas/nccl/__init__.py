"""NCCL itself on a described system: its model of time, and its protocols on a network.

    model           what it would choose, and how long it expects that (open first)
    terms           latency and bandwidth of each algorithm and protocol
    point_to_point  an all-to-all, as messages from rank to rank
    constants       the numbers of NCCL 2.30
    protocol        LL, LL128 and Simple on a simulated network

Closed forms with NVIDIA's constants, not simulations; nothing here needs a GPU, NCCL or torch.
"""
