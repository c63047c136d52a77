"""Programs: what each rank sends to whom, and nothing else.  Open `program` first.

program     steps of Send, Recv and RecvReduce, and the algorithms made of them
rank_array  one program for all ranks at once
contracts   what a collective must achieve         chunking   chunks of a buffer
channels    parallel copies of a program           placement  nodes and the order of ranks
render      programs drawn as text                 program_key  how caches know a program again
"""

from collectives.program.program import (
    Algorithm,
    Copy,
    Cost,
    Local,
    Operation,
    Program,
    Recv,
    RecvReduce,
    Reduce,
    Send,
    Step,
    algorithm,
    as_step,
)

__all__ = [
    "Algorithm",
    "Copy",
    "Cost",
    "Local",
    "Operation",
    "Program",
    "Recv",
    "RecvReduce",
    "Reduce",
    "Send",
    "Step",
    "algorithm",
    "as_step",
]
