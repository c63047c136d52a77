"""``testbed export``: an algorithm, or a table of times, in the format of another runtime."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from collectives.formats.json_document import parse_json, read_bytes
from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.options.arguments import CollectiveOf
from testbed.options.command import Outputs, command
from testbed.options.outputs import STDOUT
from testbed.output.table import counted
from testbed.result import Result, Rows, Text, asked, found

if TYPE_CHECKING:
    from collectives.formats.nccl_tuner import TunerTiming

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
    from collectives.formats.nccl_tuner import to_tuner_csv

    if ranks is not None:
        raise UsageError("--ranks is for algorithms; a table says itself how many ranks took part")
    content = _read_table(Path(source))
    timings = [_timing(f"{source}: row {number}", row, content) for number, row in enumerate(content["rows"])]
    text = to_tuner_csv(timings, content["ranks"], protocol=protocol)
    facts = {"table": source, "ranks": content["ranks"], "timings": len(timings)}
    return text, f"{counted(len(timings), 'time')} of {source}", content.get("method"), facts


def _read_table(path: Path) -> dict[str, Any]:
    """Return a result document of ``testbed bench``."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; expected what testbed bench --output writes")
    content = parse_json(read_bytes(path, UsageError), str(path), UsageError)
    if isinstance(content, dict):
        ranks = content.get("ranks")
        if isinstance(content.get("rows"), list) and type(ranks) is int and ranks > 0:
            return content
    raise UsageError(f'{path}: expected what testbed bench --output writes, with "ranks" and "rows"')


def _timing(where: str, row: Any, content: Mapping[str, Any]) -> TunerTiming:
    """Return what *row* says, or the document where that speaks for all rows."""
    from collectives.formats.nccl_tuner import TunerTiming
    from collectives.program.contracts import CONTRACTS

    if not isinstance(row, dict):
        raise UsageError(f"{where}: expected an object, got {row!r:.40}")
    collective = row.get("collective", content.get("collective", "all_reduce"))
    name = row.get("algorithm", content.get("algorithm"))
    size: Any = row.get("size_bytes")
    time: Any = row.get("time_us")
    if collective not in list(CONTRACTS):
        raise UsageError(f"{where}: collective is one of {', '.join(CONTRACTS)}; got {collective!r}")
    if not isinstance(name, str):
        raise UsageError(f"{where}: expected algorithm, a name; got {name!r}")
    if type(size) is not int or size < 0:
        raise UsageError(f"{where}: expected size_bytes, a number of bytes; got {size!r}")
    if type(time) not in (int, float) or not math.isfinite(time) or time < 0:
        raise UsageError(f"{where}: expected time_us, a time in microseconds; got {time!r}")
    return TunerTiming(collective, name, size, time)
