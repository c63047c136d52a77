"""Results as tables, plots and folders."""
