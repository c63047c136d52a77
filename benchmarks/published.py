"""Predictions of the presets beside published measurements of such systems.

    python benchmarks/published.py

Each line is one measurement (``tests/data/published.csv``, with its source) that has given no number to a
preset, and tells how well it predicts; rows marked *calibration* have, and are left out.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from collectives import simulate
from sim import load_network
from testbed.output.table import seconds, spell_size

DATA = Path(__file__).parents[1] / "tests" / "data" / "published.csv"


@dataclass(frozen=True)
class Comparison:
    """One published measurement beside its prediction; times in seconds."""

    use: str
    network: str
    collective: str
    algorithm: str
    ranks: int
    nbytes: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """How much longer the prediction is than the measurement, as a fraction of the latter."""
        return self.predicted / self.measured - 1

    def cells(self) -> list[str]:
        """Return the row of a table."""
        return [
            self.network,
            f"{self.collective} {self.algorithm}",
            str(self.ranks),
            spell_size(self.nbytes),
            seconds(self.measured),
            seconds(self.predicted),
            f"{100 * self.error:+.1f} %",
        ]


HEADER = ["network", "collective, as", "ranks", "size", "measured", "predicted", "error"]


def compare() -> list[Comparison]:
    """Return all comparisons, in the order of the data."""
    with DATA.open(encoding="utf-8") as file:
        return [_compare(row) for row in csv.DictReader(file)]


def _compare(row: dict[str, str]) -> Comparison:
    ranks, nbytes = int(row["ranks"]), int(row["size_bytes"])
    run = simulate(
        row["algorithm"],
        nbytes=nbytes,
        topology=load_network(row["network"]).topology(ranks),
        collective=row["collective"],
    )
    return Comparison(
        row["use"],
        row["network"],
        row["collective"],
        row["algorithm"],
        ranks,
        nbytes,
        measured=float(row["time_us"]) / 1e6,
        predicted=run.seconds,
    )


def markdown(comparisons: list[Comparison]) -> str:
    """Return the table in Markdown, of the rows that gave no number to a preset."""
    rows = [own.cells() for own in comparisons if own.use == "test"]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [HEADER, ["---"] * len(HEADER), *rows])


if __name__ == "__main__":
    print(markdown(compare()), end="")
