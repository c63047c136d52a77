"""Measured kernels, collectives and steps in tables of columns, and what the models predict of their rows.

rows        tables of rows, which part of them is kept back, and errors
devices     names of GPUs in tables, and the device files that stand for them
products    matrix products, in short runs and long ones
attention   fused attention
experts     layers of routed experts
nodes       NCCL's collectives inside a node
sets        kinds of tables, and what is predicted of each
judging     rows of tables beside what was foretold of them
steps       training steps of Llama-like models: how long they take, what they hold
fitting     constants of device files, fitted to such tables

What predicts is what ``testbed run`` charges: kernels are asked of `Launches` on the device's file,
collectives of the network's.  No table is part of the project.
"""
