"""`testbed scale`: its figures are those of the closed form, and bad input ends early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectives.simulation import default_algorithm
from ddp import Profile, simulate_step
from ddp.profiles import load_profile
from ddp.reduction.overlap import STRATEGIES
from sim import load_network
from testbed.cli import app


@pytest.fixture
def uniform(tmp_path: Path) -> Path:
    """Eight buckets of 25 MiB, each 5 ms after the one before."""
    path = tmp_path / "uniform.json"
    Profile.uniform(num_buckets=8, bucket_bytes=25 * 2**20, seconds_per_bucket=5e-3).save(path)
    return path


def test_equal_buckets_on_a_switch_take_what_the_closed_form_says(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "switch-100g", "--ranks", "1,64", "--json"]
    arguments += ["--algorithm", "ring"]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    rows = {(row["strategy"], row["ranks"]): row for row in document["rows"]}
    assert rows["wait_free", 64]["step_seconds"] == pytest.approx(44.632768e-3, rel=1e-6)
    assert rows["wait_free", 64]["num_buckets"] == 8
    assert rows["wait_free", 1]["exposed_seconds"] == 0
    assert rows["after_backward", 64]["step_seconds"] > rows["wait_free", 64]["step_seconds"]
    assert document["topologies"].keys() == {"switch-100g x 1", "switch-100g x 64"}
    assert document["method"] == "simulated"


def test_the_table_and_the_plot_say_what_was_assumed(uniform: Path, tmp_path: Path) -> None:
    plot = tmp_path / "scaling.svg"
    arguments = ["scale", "--profile", str(uniform), "--ranks", "1-4", "--plot", str(plot)]

    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.stderr
    assert "8 equal buckets" in result.stdout
    assert "Simulated: weak scaling; auto all-reduce of 25 MiB buckets" in result.stdout
    assert plot.read_text(encoding="utf-8").startswith("<?xml")


def test_every_strategy_is_compared_and_headed_by_the_name_that_the_option_takes(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "switch-100g", "--ranks", "4"]
    arguments += ["--strategy", "priority:credits=2,partition_mb=8"]

    every = CliRunner().invoke(app, [*arguments, "--strategy", "all", "--json"])
    one = CliRunner().invoke(app, arguments)

    assert every.exit_code == one.exit_code == 0, every.stderr + one.stderr
    assert [row["strategy"] for row in json.loads(every.stdout)["rows"]] == list(STRATEGIES)
    assert "priority:partition_mb=8,credits=2" in " ".join(one.stdout.split())


def test_what_is_expected_stands_beside_what_is_ideal(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "dgx-a100", "--ranks", "64"]
    arguments += ["--algorithm", "ring"]
    counting = ["--overhead", "20us", "--reduction-bandwidth", "100GB/s"]

    plain = CliRunner().invoke(app, [*arguments, "--losses", "none", "--json"])
    counted = CliRunner().invoke(app, [*arguments, "--losses", "none", *counting, "--json"])
    table = CliRunner().invoke(app, [*arguments, "--losses", "none", *counting])

    assert plain.exit_code == counted.exit_code == table.exit_code == 0, plain.stderr + counted.stderr
    before, after = (json.loads(result.stdout)["rows"] for result in (plain, counted))
    ideal = ("step_seconds", "exposed_seconds", "efficiency")
    assert [[row[name] for name in ideal] for row in before] == [
        [row[name] for name in ideal] for row in after
    ]
    assert all(row["efficiency_expected"] == row["efficiency"] for row in before)
    assert all(row["efficiency_expected"] < row["efficiency"] for row in after)
    assert {row["transport_model"] for row in before} == {"nccl"}
    assert "20us of overhead for each message on either side" in " ".join(table.stdout.split())


def test_nccls_own_times_are_expected_where_they_are_asked_for(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--ranks", "16", "--model", "nccl", "--json"]
    arguments += ["--losses", "none"]

    known = CliRunner().invoke(app, [*arguments, "--network", "dgx-h100"])

    assert known.exit_code == 0, known.stderr
    assert {row["expected"] for row in json.loads(known.stdout)["rows"]} == {
        "each bucket by the closed form nccl"
    }


def test_where_no_gpu_is_named_a_real_run_is_expected_to_go_over_gloo(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "ethernet-25g", "--ranks", "4,64"]
    arguments += ["--algorithm", "ring"]

    default = CliRunner().invoke(app, [*arguments, "--json"])
    nothing = ["--transport-model", "ideal", "--losses", "none"]
    ideal = CliRunner().invoke(app, [*arguments, *nothing, "--json"])
    table = CliRunner().invoke(app, arguments)

    rows = json.loads(default.stdout)["rows"]
    assert {row["transport_model"] for row in rows} == {"gloo"}
    overlapped = [row for row in rows if row["strategy"] == "wait_free"]
    assert all(row["efficiency_expected"] < row["efficiency"] for row in overlapped)
    assert "each step's sends awaited" in overlapped[1]["expected"]
    without = json.loads(ideal.stdout)["rows"]
    assert [row["efficiency"] for row in without] == [row["efficiency_expected"] for row in without]
    assert [row["efficiency"] for row in without] == [row["efficiency"] for row in rows]
    assert "Expected on ethernet-25g, 4 ranks: transport model gloo; losses: late." in " ".join(
        table.stdout.split()
    )


def test_all_losses_that_apply_are_expected_unless_others_are_named(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "dgx-h100", "--ranks", "16", "--json"]

    default = json.loads(CliRunner().invoke(app, arguments).stdout)["rows"]
    late = json.loads(CliRunner().invoke(app, [*arguments, "--losses", "late,copies"]).stdout)["rows"]

    assert default[0]["losses"] == ["rate", "contention", "late", "copies", "optimizer"]
    assert late[0]["losses"] == ["late", "copies"]
    assert [row["efficiency"] for row in default] == [row["efficiency"] for row in late]


def test_strong_scaling_keeps_the_batch_of_the_fewest_ranks(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "switch-100g", "--ranks", "4,16", "--json"]
    arguments += ["--transport-model", "ideal", "--losses", "none", "--strategy", "after_backward"]

    weak = json.loads(CliRunner().invoke(app, arguments).stdout)["rows"]
    document = json.loads(CliRunner().invoke(app, [*arguments, "--strong"]).stdout)

    few, many = document["rows"]
    assert few["step_seconds"] == weak[0]["step_seconds"]
    assert few["efficiency"] == pytest.approx(weak[0]["efficiency"])
    computing = 8 * 5e-3 * 4 / 16
    assert many["step_seconds"] == pytest.approx(weak[1]["step_seconds"] - 8 * 5e-3 + computing)
    assert many["efficiency"] == pytest.approx(computing / many["step_seconds"])
    assert {row["scaling"] for row in document["rows"]} == {"strong"}
    assert document["model"].startswith("strong scaling of the batch that 4 of the profile's ranks have")


def test_in_strong_scaling_an_optimizer_is_not_divided(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "dgx-a100", "--ranks", "1,8", "--json"]

    run = CliRunner().invoke(app, [*arguments, "--strong", "--losses", "optimizer"])

    rows = [row for row in json.loads(run.stdout)["rows"] if row["strategy"] == "wait_free"]
    assert rows[0]["efficiency_expected"] == pytest.approx(1)
    optimizer = rows[0]["step_seconds_expected"] - rows[0]["step_seconds"]
    assert rows[1]["step_seconds_expected"] - rows[1]["step_seconds"] == pytest.approx(optimizer)
    assert rows[1]["efficiency_expected"] < rows[1]["efficiency"]


def test_what_gloo_runs_is_expected_and_is_ideal_with_its_sends_awaited(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "ethernet-25g", "--ranks", "1,4"]
    arguments += ["--algorithm", "native", "--losses", "none"]

    known = CliRunner().invoke(app, [*arguments, "--json"])

    assert known.exit_code == 0, known.stderr
    rows = {(row["strategy"], row["ranks"]): row for row in json.loads(known.stdout)["rows"]}
    topology = load_network("ethernet-25g").topology(4)
    expected = simulate_step(
        Profile.load(uniform), topology=topology, algorithm="native", transport_model="gloo"
    )
    assert rows["wait_free", 4]["step_seconds_expected"] == expected.seconds
    assert rows["wait_free", 4]["transport_model"] == "gloo"
    assert rows["wait_free", 4]["efficiency"] == pytest.approx(expected.efficiency, rel=0.05)
    assert rows["wait_free", 1]["efficiency"] == 1


def test_what_nccl_runs_is_expected_and_nothing_is_said_of_its_ideal(uniform: Path, tmp_path: Path) -> None:
    plot = tmp_path / "scaling.svg"
    arguments = ["scale", "--profile", str(uniform), "--network", "dgx-h100", "--ranks", "1,16"]
    arguments += ["--algorithm", "native"]

    free = CliRunner().invoke(app, [*arguments, "--losses", "none", "--strong", "--json"])
    lossy = CliRunner().invoke(app, [*arguments, "--plot", str(plot)])

    assert free.exit_code == lossy.exit_code == 0, free.stderr + lossy.stderr
    rows = json.loads(free.stdout)["rows"]
    assert {row[name] for row in rows for name in ("step_seconds", "exposed_seconds", "efficiency")} == {None}
    assert all(0 < row["efficiency_expected"] <= 1 for row in rows)
    assert all(
        "each bucket by the closed form nccl; which program NCCL runs" in row["expected"] for row in rows
    )
    assert "so no ideal step is given" in " ".join(lossy.stdout.split())
    assert plot.exists()


def test_what_goes_by_default_uses_every_card_and_what_is_slower_is_said(uniform: Path) -> None:
    arguments = ["scale", "--profile", str(uniform), "--network", "dgx-h100", "--ranks", "16", "--json"]

    by_default = json.loads(CliRunner().invoke(app, arguments).stdout)
    flat = json.loads(CliRunner().invoke(app, [*arguments, "--algorithm", "ring"]).stdout)
    told = CliRunner().invoke(app, [*arguments[:-1], "--algorithm", "ring"]).stdout

    assert {row["algorithm"] for row in by_default["rows"]} == {"nccl"}
    (carrier,) = by_default["carriers"]
    assert (carrier["channels"], carrier["cards"], carrier["cards_of"], carrier["faster"]) == (8, 8, 8, None)
    (carrier,) = flat["carriers"]
    assert (carrier["channels"], carrier["cards"], carrier["cards_of"]) == (1, 1, 8)
    assert carrier["faster"]["seconds_now"] > 1.1 * carrier["faster"]["seconds"]
    assert "times as fast as ring for all_reduce of 25 MiB (--algorithm auto takes it)" in " ".join(
        told.split()
    )


def test_more_parts_than_a_step_can_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    Profile.uniform(num_buckets=1, bucket_bytes=4 * 2**40, seconds_per_bucket=1.0).save(path)
    arguments = ["scale", "--profile", str(path), "--network", "switch-100g", "--ranks", "8"]

    refused = CliRunner().invoke(app, [*arguments, "--strategy", "priority"])

    assert refused.exit_code == 2
    assert "priority: 1048576 parts of 4 MiB; expected at most 100000" in " ".join(refused.stderr.split())


def test_400_gbit_cards_are_worth_little_over_100_where_all_of_a_node_are_used() -> None:
    examples = Path(__file__).parents[3] / "examples"
    profile = load_profile("gpt2-xl")

    slow, fast = (
        simulate_step(profile, topology=topology, algorithm=default_algorithm(topology), losses="all")
        for topology in (load_network(examples / name).topology(64) for name in ("n100.toml", "n400.toml"))
    )

    assert slow.model == fast.model == "nccl"
    assert 1.05 < slow.seconds / fast.seconds < 1.15
