"""Networks and devices in files: a TOML file becomes data.

    network_file   what a network file says: a preset or the user's own (open first)
    schema         one model for each kind of network
    graph_tables   the tables of any graph         hardware_table  what NCCL's model must know
    device_file    load_device
    fields         the kinds of fields             toml_lines      on which line a key stands
    named          files that ship, by name        problems        what is wrong, in our words

Nothing here is imported by `import sim`, as pydantic takes its time.
"""
