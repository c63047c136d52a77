"""Network files: a TOML file becomes the arguments of a kind of network.

    schema         the fields of each kind, out of its parameters (open first)
    graph_tables   the tables of any graph
    hardware_table, measured_table   what NCCL's model must know, and what was measured
    overrides      the same file with other values

`sim.topology.description` reads a file whole, a preset or the user's own.

Nothing here is imported by `import sim`, as pydantic takes its time.
"""
