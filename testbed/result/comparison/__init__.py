"""Comparison of two results: what was asked differently, and what came out differently.

Any two documents that commands write with ``--json`` can be compared (`testbed.output.folder.document`):
`read_result` reads them strictly, `tables` finds their rows, `key_fields` says which row of one stands beside
which row of the other, `compare` holds them against each other.
"""

from testbed.result.comparison.compare import Comparison, Difference, Pair, compare, is_number, relative
from testbed.result.comparison.result_file import ResultError, ResultFile, read_result

__all__ = [
    "Comparison",
    "Difference",
    "Pair",
    "ResultError",
    "ResultFile",
    "compare",
    "is_number",
    "read_result",
    "relative",
]
