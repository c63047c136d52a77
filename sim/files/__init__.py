"""Networks in files: what a TOML file may say, and how it becomes a topology.

    description   load_network: a preset or a file (open first)
    schema        one model for each kind of network
    graph_tables  the tables of any graph          hardware_table  what NCCL's model must know
    fields        the kinds of fields              toml_lines      on which line a key stands

Nothing here is imported by `import sim`, as pydantic takes its time.
"""
