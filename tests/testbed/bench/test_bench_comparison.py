"""`testbed bench` over every collective, and with several algorithms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collectives import algorithm_names
from collectives.program.contracts import CONTRACTS
from testbed.bench import benchmark
from testbed.bench.measure import Row, row
from testbed.cli import app
from testbed.commands import bench
from tests.testbed.commands.test_bench_command import NOTHING, run_bench

SIZES = ["--sizes", "1K,64K"]


def bench_json(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["bench", *SIZES, *arguments, "--json"])
    assert result.exit_code == code, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("transport", ["sim", "threads"])
@pytest.mark.parametrize("collective", CONTRACTS)
def test_every_collective_is_timed_and_its_payload_checked(collective: str, transport: str) -> None:
    how = ["--payload"] if transport == "sim" else ["--transport", "threads", "--iterations", "2"]

    document = bench_json("--collective", collective, "--ranks", "3", "--algorithm", "all", *how)

    refused = {own["algorithm"] for own in document["refused"]}
    ran = [name for name in algorithm_names(collective) if name not in refused]
    assert sorted(own["algorithm"] for own in document["rows"]) == sorted([*ran, *ran])
    assert {own["collective"] for own in document["rows"]} == {document["collective"]} == {collective}
    assert {own["wrong"] for own in document["rows"]} == {0}
    assert {own["root"] for own in document["rows"]} <= {0, None}


def test_a_collective_may_be_written_as_prose_has_it() -> None:
    assert bench_json("--collective", "all-to-all")["collective"] == "all_to_all"


def test_every_row_says_which_engine_gave_it() -> None:
    document = bench_json("--ranks", "16", "--algorithm", "ring,double_binary_tree")

    engines = {own["algorithm"]: own["engine"] for own in document["rows"]}
    assert engines == {"ring": "makespan", "double_binary_tree": "events"}
    assert "engines makespan and events" in document["model"]


def test_the_fastest_are_marked_and_who_refuses_is_named() -> None:
    arguments = ["bench", *SIZES, "--collective", "all_gather", "--ranks", "6", "--network", "ethernet-25g"]

    result = CliRunner().invoke(app, [*arguments, "--algorithm", "ring,bruck,halving_doubling:order=near"])

    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "All-gather on ethernet-25g, 6 ranks, simulated"
    assert [line.split()[0] for line in lines[5:8]] == ["bruck", "ring", "floor"]
    assert "1008 B – 64 KiB  bruck" in result.stdout
    assert "Left out: halving_doubling:order=near of all_gather is for powers of two" in result.stdout


def test_what_would_take_long_to_simulate_is_left_out_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(benchmark, "MAX_MESSAGES", 100)

    document = bench_json("--ranks", "16", "--algorithm", "all")
    named = bench_json("--ranks", "16", "--algorithm", "double_binary_tree")

    refused = {own["algorithm"]: own["reason"] for own in document["refused"]}
    assert "--algorithm all,double_binary_tree" in refused["double_binary_tree"]
    assert "ring" not in refused
    assert len(named["rows"]) == 2


def test_the_result_is_saved_and_drawn_as_well_as_printed(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "times.json", tmp_path / "times.png"

    document = bench_json("--algorithm", "ring,tree", "--save", str(saved), "--plot", str(drawn))

    assert json.loads(saved.read_text()) == document
    assert (document["transport"], document["ranks"], len(document["rows"])) == ("sim", 4, 4)
    assert {"versions", "method", "topologies"} <= document.keys()
    assert drawn.stat().st_size > 5000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["times.json", "times.png"]


def test_whoever_comes_out_wrong_is_named_and_never_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "collectives.catalogue.admission.evidence_of", lambda *_: None
    )  # as if it were proved
    path = tmp_path / "own.py"
    path.write_text(NOTHING, encoding="utf-8")
    names = f"{path}:overwrites,ring"

    result = CliRunner().invoke(app, ["bench", *SIZES, "--ranks", "2", "--payload", "--algorithm", names])

    assert result.exit_code == 1
    assert f"all-reduce over sim came out wrong; {path}:overwrites: " in result.stderr
    assert result.stdout.count("*") == 3
    assert "1 KiB – 64 KiB  ring" in result.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_simulated_when_it_is_interrupted_is_printed(
    monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def interrupted(*_: Any) -> Iterator[Row]:
        for name in ("ring", "tree"):
            yield replace(row("all_reduce", name, 256, "float32", 4, 1e-6, None), engine="makespan")
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "simulate_rows", interrupted)

    result = CliRunner().invoke(app, ["bench", *SIZES, "--algorithm", "all", *["--json"][: int(as_json)]])

    assert result.exit_code == 130
    assert result.stderr == "testbed: interrupted\n"
    assert ("*1.00" in result.stdout) is not as_json
    assert "Traceback" not in result.stdout


@pytest.mark.costly
@pytest.mark.distributed
def test_over_gloo_all_are_compared_with_gloos_own_and_rank_0_alone_prints(tmp_path: Path) -> None:
    saved = tmp_path / "gloo.json"
    arguments = ["--transport", "gloo", "--ranks", "3", "--sizes", "4K", "--iterations", "2"]

    document = run_bench(*arguments, "--collective", "broadcast", "--algorithm", "all", "--save", str(saved))

    assert [own["algorithm"] for own in document["rows"]] == [*algorithm_names("broadcast"), "native"]
    assert (document["ranks"], {own["count"] for own in document["rows"]}) == (3, {1024})
    assert {own["wrong"] for own in document["rows"]} == {0}
    assert json.loads(saved.read_text())["rows"] == document["rows"]


def test_a_simulated_choice_says_what_it_has_chosen_and_is_no_slower_than_that() -> None:
    document = bench_json("--ranks", "8", "--algorithm", "auto,ring,tree,direct", "--payload")

    times = {(own["algorithm"], own["size_bytes"]): own["time_us"] for own in document["rows"]}
    for own in document["rows"]:
        if own["algorithm"] == "auto":
            assert own["wrong"] == 0
            assert times.get((own["chosen"], own["size_bytes"]), own["time_us"]) == own["time_us"]


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("fastest", ["ring", "native"])
def test_over_gloo_auto_follows_the_table_that_bench_has_saved_and_says_what_it_took(
    fastest: str, tmp_path: Path
) -> None:
    saved = tmp_path / "gloo.json"
    arguments = ["--transport", "gloo", "--ranks", "2", "--sizes", "4K", "--iterations", "2"]
    run_bench(*arguments, "--algorithm", "ring,native", "--save", str(saved))
    table = json.loads(saved.read_text())
    for own in table["rows"]:
        own["time_us"] = 1.0 if own["algorithm"] == fastest else 2.0
    saved.write_text(json.dumps(table))

    document = run_bench(*arguments, "--algorithm", f"auto:table={saved}")

    assert [(own["wrong"], own["chosen"]) for own in document["rows"]] == [(0, fastest)]
