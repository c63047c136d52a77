"""Data-parallel training as torch spells it.  Open `data_parallel` first."""
