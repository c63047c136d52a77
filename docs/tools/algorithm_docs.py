"""The site's pages of algorithms and their schedules, made of the shipped algorithms: ``make site``.

The words are those of the docstrings, the figures the declared costs, which the proof checks.  Proofs take
minutes, so the world sizes they cover are kept in ``proved_for.json``: ``make docs`` proves and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS
from collectives.errors import NotSupportedError
from collectives.formats.whole_file import write_whole
from collectives.program import Algorithm, Cost
from collectives.program.contracts import CONTRACTS
from collectives.program.render import draw
from docs.tools.schedule_gallery import as_drawn, first_accepted, gallery, picture_name, picture_of
from testbed.report.schedule import describe, markdown, module_summary
from testbed.studies.proofs import ALWAYS_PROVED, scope_beyond

PROVED_FOR = Path(__file__).with_name("proved_for.json")
GALLERY = "schedules"
WORLD_SIZES = (4, 12, 64, 1024)
DRAWN_SIZES = (4, 8, 2, 6, 9, 16)
DRAWN_STEPS = 16
PICTURE_WIDTH = 480

_HEAD = """\
# Algorithms

What ships, for which collective, at what cost. An algorithm is a program (`collectives/program/program.py`);
this page is made of its docstring, of the cost that it declares, and of its schedule. `testbed verify` proves
all of it, the costs too; `testbed show NAME --ranks 8` draws any other size. **[All schedules side by
side](schedules/README.md)**

## Costs
With *p* ranks, parameters as by default:
- **proved for**: the world sizes for which `testbed verify` proves it, some by induction
  ([proofs.md](proofs.md)).
- **steps**: the longest chain of dependent messages, so what latency multiplies.
- **sent / bound**: bytes that the busiest rank sends, over the fewest that are possible for this collective;
  1.00 is optimal in bandwidth. The bound itself, in buffers, stands in the last row. The buffer is the
  tensor; of all-gather, reduce-scatter, all-to-all, gather and scatter it is all ranks' parts together, as
  in nccl-tests.
- **–**: the algorithm refuses this number of ranks.

Neither says how messages share links: that is for `testbed bench --transport sim`.
"""

_NOTATION = """\
## Notation of the drawings
In a picture, ranks stand side by side, steps go downwards, and an arrow is a message that carries the chunks
on its label: blue is reduced into what the receiver holds, orange overwrites it. A dashed label is what a
rank does by itself.

As text, a row is a step, a column a rank. `c>r` sends chunk c to rank r, `c+r` reduces into chunk c what r
sends, `c<r` overwrites chunk c by what r sends, `c=s` copies chunk s onto chunk c, `c+=s` reduces it in;
`2-5` is a range of chunks, `s0` the first chunk of scratch; `·` is nothing.
"""


def algorithm_docs() -> str:
    """Return the page of all algorithms: costs side by side, then each one's idea, source and drawing."""
    scopes = json.loads(PROVED_FOR.read_text(encoding="utf-8"))
    tables = [_costs(collective, scopes) for collective in CONTRACTS]
    families = [
        _family(list(members)) for _, members in groupby(by_file(), key=lambda own: own.program.__module__)
    ]
    return "\n".join([_HEAD, *filter(None, tables), _NOTATION, *families])


def algorithm_pages() -> dict[str, str]:
    """Return every file about algorithms by its name in the site: the page, the gallery and its pictures."""
    drawn = {f"{GALLERY}/{name}": text for name, text in gallery(by_file()).items()}
    return {"algorithms.md": algorithm_docs(), **drawn}


def by_file() -> list[Algorithm]:
    """Return all algorithms, naive first, those of one file together, in the order shipped."""
    shipped = (*ALGORITHMS, *NATIVE_ALGORITHMS)
    return sorted(shipped, key=lambda own: (own.name != "naive", own.program.__module__))


def cost_of(algorithm: Algorithm, world_size: int) -> Cost | None:
    """Return what *algorithm* declares to cost, or None where it refuses to run."""
    try:
        next(algorithm.steps(0, world_size), None)
        return algorithm.cost(world_size)
    except NotSupportedError:
        return None


def proved_for(algorithm: Algorithm) -> str:
    """Return the world sizes for which ``testbed verify`` proves *algorithm*."""
    beyond = scope_beyond(algorithm)
    return ALWAYS_PROVED if beyond is None else beyond.sizes


def _costs(collective: str, scopes: dict[str, str]) -> str:
    """Return the table that compares what ships for *collective*."""
    rows = []
    bounds = [CONTRACTS[collective].min_bytes_sent_fraction(world_size) for world_size in WORLD_SIZES]
    for algorithm in (own for own in by_file() if own.collective == collective):
        costs = [cost_of(algorithm, world_size) for world_size in WORLD_SIZES]
        steps = ["–" if cost is None else str(cost.num_steps) for cost in costs]
        sent = [
            "–" if cost is None else f"{float(cost.max_bytes_sent_fraction / bound):.2f}"
            for cost, bound in zip(costs, bounds, strict=True)
        ]
        rows.append(
            [
                f"[{algorithm.name}](#{_anchor(algorithm)})",
                scopes.get(_anchor(algorithm), "not yet proved"),
                *steps,
                *sent,
            ]
        )
    if not rows:
        return ""
    blank = [""] * len(WORLD_SIZES)
    rows.append(["*bound, in buffers*", "", *blank, *(f"*{float(bound):.3f}*" for bound in bounds)])
    first, *others = (str(size) for size in WORLD_SIZES)
    header = [collective, "proved for", f"steps, p = {first}", *others, f"sent / bound, p = {first}", *others]
    return _table(header, rows)


def _family(members: Sequence[Algorithm]) -> str:
    """Return the section about the algorithms of one file."""
    name = members[0].program.__module__.removeprefix("collectives.algorithms.")
    path = f"collectives/algorithms/{name.replace('.', '/')}.py"
    parts = [f"## {name}\n{markdown(module_summary(members[0]))} [`{path}`](../{path})\n"]
    return "\n".join([*parts, *map(_algorithm, members)])


def _algorithm(algorithm: Algorithm) -> str:
    description = describe(algorithm)
    paragraphs = [f"### {algorithm.name}, {algorithm.collective}", description.summary, *description.idea]
    if description.parameters:
        listed = [f"- `{name}`{': ' if said else ''}{said}" for name, said in description.parameters]
        paragraphs.append("\n".join(["Parameters:", *listed]))
    if description.source:
        paragraphs.append(f"Source: {description.source}")
    return "\n\n".join([*map(markdown, paragraphs), _drawing(algorithm)]) + "\n"


def _drawing(algorithm: Algorithm) -> str:
    """Return the picture of *algorithm*, and folded below it a small schedule as text."""
    shown = picture_of(algorithm)
    title = f"{shown.algorithm}, {shown.collective}, {shown.world_size} ranks"
    picture = f'<img src="{GALLERY}/{picture_name(algorithm)}" width="{PICTURE_WIDTH}" alt="{title}">'
    drawn = as_drawn(algorithm)
    world_size = first_accepted(drawn, DRAWN_SIZES)
    num_steps = max(sum(1 for _ in drawn.steps(rank, world_size)) for rank in range(world_size))
    lines = [draw(drawn, world_size, steps=range(DRAWN_STEPS))]
    if num_steps > DRAWN_STEPS:
        lines.append(f"… and {num_steps - DRAWN_STEPS} more steps")
    summary = f"<summary>{drawn} for {world_size} ranks as text</summary>"
    return "\n".join([picture, "", f"<details>{summary}", "", "```", *lines, "```", "</details>"])


def _anchor(algorithm: Algorithm) -> str:
    """Return the anchor that GitHub gives to the heading of *algorithm*."""
    return f"{algorithm.name}-{algorithm.collective}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *["--:"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *rows))


if __name__ == "__main__":
    found = {_anchor(own): proved_for(own) for own in by_file()}
    write_whole(PROVED_FOR, json.dumps(found, indent=1) + "\n")
