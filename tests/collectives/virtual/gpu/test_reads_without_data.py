"""Errors of ranks that have read from a device without data: the line of the last read is named."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual import Roofline, run
from sim.errors import RankError
from tests.collectives.virtual import clusters
from tests.commands import called

READS = {
    "loss.item()": "numbers read from the device are NaN",
    "float(loss)": "numbers read from the device are NaN",
    "bool(torch.isfinite(loss))": "truth values read from the device are False",
    "loss.cpu()": "numbers copied to the CPU, or written into tensors there, are NaN",
    "torch.zeros(1, dtype=torch.int64).copy_(count)": "integers written into tensors of the CPU are 0",
}
BEGINNING = """\
import os, sys
import torch
rank = int(os.environ["RANK"])
loss = torch.randn(1000, 1000, device="cuda").sum()
count = (torch.randn(1000, 1000, device="cuda") > 0).sum().reshape(1)
"""
lists_of_reads = st.lists(st.sampled_from(list(READS)), max_size=4)


@given(st.tuples(lists_of_reads, lists_of_reads), st.sampled_from(["raise ValueError", "sys.exit(3)"]))
def test_an_error_names_the_last_read_of_the_rank_that_fails(
    tmp_path_factory: pytest.TempPathFactory, reads: tuple[list[str], list[str]], ending: str
) -> None:
    lines = BEGINNING.splitlines()
    for rank, of_rank in enumerate(reads):
        lines += ["", f"if rank == {rank}:", "    pass", *(f"    {read}" for read in of_rank)]
        last = len(lines)
    path = clusters.script(tmp_path_factory.mktemp("script"), "\n".join([*lines, f"if rank == 1: {ending}"]))

    with pytest.raises(RankError) as failure:
        run(path, 2, "dgx-h100", compute=Roofline("h100"), fake=True)

    notes = [note for note in failure.value.__notes__ if "without data" in note]
    if reads[1]:
        assert len(notes) == 1
        assert READS[reads[1][-1]] in notes[0]
        assert notes[0].endswith(f", last at script.py:{last}")
    else:
        assert not notes


def test_a_guard_that_ends_the_script_without_a_traceback_is_explained(tmp_path: Path) -> None:
    guard = """\
        import math, sys
        import torch
        loss = torch.randn(1000, 1000, device="cuda").sum()
        if not math.isfinite(loss.item()):
            sys.exit(1)
    """
    path = clusters.script(tmp_path, textwrap.dedent(guard))

    result = called(f"run --fake --ranks 2 --network dgx-h100 --compute h100 {path}", code=1)

    *notes, error = result.stderr.splitlines()
    assert notes[-1] == "  note: without data numbers read from the device are NaN, last at script.py:4"
    assert error.endswith("rank 0: ended with exit code 1")
