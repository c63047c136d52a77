"""Results: what a command found, said once, and shown on terminals, pages, in files and notebooks.

result    a result, its rows and their columns; as CSV, and as a DataFrame
parts     what is shown of it: text, facts, tables, plots; on a terminal
page      a result as one page of HTML
"""

from testbed.result.parts import Facts, Fitted, Grid, Part, Plot, Text, quiet, warning
from testbed.result.result import Column, Interrupted, Result, Rows, asked, found, found_by

__all__ = [
    "Column", "Facts", "Fitted", "Grid", "Interrupted", "Part", "Plot", "Result", "Rows", "Text",
    "asked", "found", "found_by", "quiet", "warning",
]  # fmt: skip
