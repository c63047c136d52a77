"""``testbed export``: an algorithm, or a table of times, in the format of another runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from collectives.formats.json_document import read_json_document
from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.options.arguments import CollectiveOf
from testbed.options.command import Outputs, command
from testbed.options.outputs import STDOUT
from testbed.output.table import counted
from testbed.result import Result, Rows, Text, asked, found

EXAMPLES = """\b
Examples:
  testbed export ring --ranks 8 --format msccl --output ring8.xml
  testbed export direct --collective all_gather --ranks 8 --format mscclpp
  testbed export times.json --format nccl-tuner --output nccl_tuner.conf
"""

MAX_RANKS = 256


Format: TypeAlias = Literal["msccl", "mscclpp", "nccl-tuner"]
WireProtocol: TypeAlias = Literal["simple", "ll", "ll128"]
"""How NCCL and its relatives move bytes."""


@command
def export(
    source: Annotated[str, typer.Argument(metavar="ALGORITHM|TABLE.json")],
    format: Format,
    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS, metavar="N")] = None,
    collective: CollectiveOf = None,
    protocol: WireProtocol = "simple",
    output: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    outputs: Outputs,
) -> Result:
    """Write an algorithm, or a table of which is fastest, for another runtime.

    Algorithms are proved first. What a format cannot express is refused with the reason.

    Args:
        source: As for show; for nccl-tuner what testbed bench --output has written.
        format: MSCCL XML, an MSCCL++ plan, or a table for NCCL's example tuner plugin.
        ranks: World size; a table has its own.
        protocol: Named in the file; MSCCL++ plans are simple.
        output: Where to write it; by default, and with -, stdout.
    """
    output = None if output == STDOUT else output
    if output is None and not outputs.as_json and (outputs.html or outputs.csv):
        raise UsageError("stdout is for what is exported and nothing else: add --output FILE, or --json")
    if format == "nccl-tuner":
        text, what, method, facts = _of_table(source, ranks, protocol)
    else:
        text, what, method, facts = _of_algorithm(source, format, ranks, collective, protocol)
    if output is not None:
        write_whole(output, text)
    row = {"format": format, "bytes": len(text.encode()), **facts}
    return Result(
        question=f"What is {what} in the format {format}?",
        answer=f"{row['bytes']} bytes{'' if output is None else f' in {output}'}.",
        method=method,
        model=MODELS[format],
        rows=Rows(COLUMNS, [row]),
        asked=[column.name for column in COLUMNS if column.role == "asked"],
        body=row | ({"text": text} if output is None else {"file": str(output)}),
        parts=[
            Text([text.removesuffix("\n")], tone="verbatim")
            if output is None
            else Text([f"Written to {output}."])
        ],
    )


MODELS = {
    "msccl": "the program was proved; no MSCCL ran the file",
    "mscclpp": "the program was proved; no MSCCL++ ran the plan",
    "nccl-tuner": "a choice by the times of the table; no NCCL ran with it",
}


COLUMNS = (*asked("format", "algorithm", "table", "collective", "ranks"), *found("bytes", "timings"))


Exported: TypeAlias = tuple[str, str, Any, dict[str, Any]]
"""Text of a file, what it holds in words, how that was got, and what a row says of it."""


def _of_algorithm(
    source: str, format: Format, ranks: int | None, collective: str | None, protocol: WireProtocol
) -> Exported:
    from collectives.formats.msccl_xml import to_msccl_xml
    from collectives.formats.mscclpp_json import to_mscclpp_json
    from testbed.studies.proofs import choose

    if ranks is None:
        raise UsageError(f"--format {format} is for one world size: add --ranks N")
    meant = choose([source], collective)
    algorithm = next((own for own in meant if own.collective == "all_reduce"), meant[0])
    if format == "msccl":
        named = "Simple" if protocol == "simple" else protocol.upper()
        text = to_msccl_xml(algorithm, ranks, protocol=named)
    elif protocol != "simple":
        raise UsageError(f"--protocol {protocol}: MSCCL++ plans are written for simple only")
    else:
        text = json.dumps(to_mscclpp_json(algorithm, ranks), indent=2) + "\n"
    facts = {"algorithm": str(algorithm), "collective": algorithm.collective, "ranks": ranks}
    return text, f"{algorithm} {algorithm.collective} for {counted(ranks, 'rank')}", "proved", facts


def _of_table(source: str, ranks: int | None, protocol: WireProtocol) -> Exported:
    from collectives.catalogue.measured_times import TimesDocument
    from collectives.formats.nccl_tuner import TunerTiming, to_tuner_csv

    if ranks is not None:
        raise UsageError("--ranks is for algorithms; a table says itself how many ranks took part")
    what = "what testbed bench --output writes, with transport, ranks and rows"
    if not Path(source).is_file():
        raise UsageError(f"{source}: no such file; expected {what}")
    table = read_json_document(source, TimesDocument, UsageError, what)
    timings = [TunerTiming(own.collective, own.algorithm, own.size_bytes, own.time_us) for own in table.rows]
    text = to_tuner_csv(timings, table.ranks, protocol=protocol)
    facts = {"table": source, "ranks": table.ranks, "timings": len(timings)}
    method = ["simulated" if table.transport == "sim" else "measured"]
    return text, f"{counted(len(timings), 'time')} of {source}", method, facts
