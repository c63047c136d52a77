"""Files that people write in TOML: read, checked, and named with their lines where they are wrong.

    device_file    load_device                     loss_table    what training loses beside messages
    fields         the kinds of fields             toml_lines    on which line a key stands
    named          files that ship, by name        problems      what is wrong, in our words

Those of networks are in `sim.topology.files`.  Nothing here is imported by `import sim`, as pydantic takes
its time.
"""
