"""Network files: a TOML file becomes the arguments of a kind of network.

    network_file   what a network file says: a preset or the user's own (open first)
    schema         the fields of each kind, out of its parameters
    graph_tables   the tables of any graph
    hardware_table, measured_table   what NCCL's model must know, and what was measured
    overrides      the same file with other values

Nothing here is imported by `import sim`, as pydantic takes its time.
"""
