"""Numbers on the command line beyond all bounds: one line, exit code 2, and no traceback."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from testbed.cli import app

DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        f"verify ring --ranks {DIGITS}",
        f"scale --ranks {DIGITS}",
        f"simulate ring --ranks {DIGITS}",
        f"simulate ring --ranks 4 --seed {DIGITS}",
        f"simulate ring --ranks 4 --placement 0-{DIGITS}",
        f"simulate ring --ranks 4 --nbytes 1,{DIGITS}",
        "simulate ring --ranks 4 --nbytes 1e999",
        "simulate ring --ranks 4 --nbytes 2048T",
        "simulate ring --ranks 4 --nbytes 1-4K --factor 1",
        f"simulate bucket:shape={DIGITS} --ranks 4",
        "simulate ring:channels=" + "-" * 20_000 + "1 --ranks 4",
        f"bench --ranks 2 --iterations {DIGITS}",
        "bench --ranks 2 --iterations 99999999999",
        "bench --ranks 3 --payload --sizes 1e18",
        "bench --ranks 3 --payload --sizes 100T",
        "bench --ranks 2 --transport threads --sizes 100T",
        "scale --ranks 2 --bucket-cap-mb 1e308",
        f"tune --ranks {DIGITS}",
        f"run --ranks {DIGITS} train.py",
        "run --processes 99999 train.py",
    ],
)
def test_a_number_beyond_all_bounds_is_refused(arguments: str) -> None:
    result = CliRunner().invoke(app, arguments.split())

    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr) < 1000
