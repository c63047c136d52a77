"""Interactive plots of pages, drawn by Bokeh."""
