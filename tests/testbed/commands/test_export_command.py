"""`testbed export`: the three formats, and a program that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from testbed.cli import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def table(tmp_path: Path) -> Path:
    body = {
        "method": ["simulated"],
        "ranks": 4,
        "rows": [
            {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 9.5},
            {"collective": "all_reduce", "algorithm": "double_binary_tree", "size_bytes": 1024, "time_us": 8},
        ],
    }
    path = tmp_path / "times.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def test_an_algorithm_goes_out_as_msccl_xml_and_comes_back_to_be_proved_drawn_and_timed(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "ring.xml")

    written = run("export", "ring", "--ranks", "4", "--format", "msccl", "--output", path)
    proved = run("verify", path, "--ranks", "4", "--json")
    drawn = run("show", path, "--ranks", "4")
    timed = run("bench", "--transport", "sim", "--ranks", "4", "--algorithm", path, "--sizes", "1M", "--json")
    ours = run("bench", "--transport", "sim", "--ranks", "4", "--sizes", "1M", "--json")

    assert (written.exit_code, written.stdout) == (0, f"Written to {path}.\n")
    assert json.loads(proved.stdout)["rows"][0]["num_steps"] == 6
    assert "read from MSCCL XML for 4 ranks" in drawn.stdout
    assert json.loads(timed.stdout)["rows"][0]["time_us"] == json.loads(ours.stdout)["rows"][0]["time_us"]


def test_without_a_file_it_goes_to_stdout() -> None:
    xml = run("export", "ring", "--ranks", "2", "--format", "msccl", "--protocol", "ll128")
    plan = run("export", "ring", "--collective", "all_gather", "--ranks", "2", "--format", "mscclpp")

    assert xml.stdout.startswith('<algo name="ring" proto="LL128"')
    assert json.loads(plan.stdout)["collective"] == "allgather"


def test_a_table_of_times_goes_out_for_the_tuner_plugin(tmp_path: Path) -> None:
    result = run("export", str(table(tmp_path)), "--format", "nccl-tuner")

    assert result.stdout.endswith("\nallreduce,1024,1024,tree,simple,-1,-1,4,-1,-1\n")


def test_what_bench_saves_is_such_a_table(tmp_path: Path) -> None:
    path = str(tmp_path / "bench.json")
    sizes = ("--sizes", "4K,64M", "--ranks", "8", "--save", path)
    assert run("bench", "--algorithm", "ring,double_binary_tree,swing", *sizes).exit_code == 0

    result = run("export", path, "--format", "nccl-tuner")

    assert result.stdout.endswith(
        "\nallreduce,4096,67108863,tree,simple,-1,-1,8,-1,-1"
        "\nallreduce,67108864,67108864,ring,simple,-1,-1,8,-1,-1\n"
    )


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (
            ["ring", "--ranks", "2", "--format", "mscclpp"],
            {"algorithm": "ring", "ranks": 2, "method": "proved"},
        ),
        (["TABLE", "--format", "nccl-tuner"], {"timings": 2, "ranks": 4, "method": ["simulated"]}),
    ],
)
def test_what_was_written_is_told_as_json(
    arguments: list[str], facts: dict[str, Any], tmp_path: Path
) -> None:
    source = str(table(tmp_path))
    path = tmp_path / "written"

    result = run(
        "export",
        *(source if word == "TABLE" else word for word in arguments),
        "--output",
        str(path),
        "--json",
    )

    body = json.loads(result.stdout)
    assert facts.items() <= body.items()
    assert (body["file"], body["bytes"]) == (str(path), path.stat().st_size)


def test_a_wrong_program_is_a_failed_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def silent(rank, world_size):\n    yield ()\n", encoding="utf-8")

    result = run("export", f"{path}:silent", "--ranks", "2", "--format", "msccl")

    assert result.exit_code == 1
    assert "is never written" in result.stderr
