"""Interactive plots, for the pages of results (`testbed.result`)."""
