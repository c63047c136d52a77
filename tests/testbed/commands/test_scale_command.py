"""`testbed scale`: its figures are those of the closed form, and bad input ends early."""

import pytest

from ddp import Profile
from ddp.reduction.overlap import STRATEGIES
from tests.commands import called, in_one_line, reported, rows_of


@pytest.fixture
def uniform(tmp_path):
    """Eight buckets of 25 MiB, each 5 ms after the one before."""
    path = tmp_path / "uniform.json"
    Profile.uniform(num_buckets=8, bucket_bytes=25 * 2**20, seconds_per_bucket=5e-3).save(path)
    return path


def test_every_strategy_is_compared_and_headed_by_the_name_that_the_option_takes(uniform):
    asked = f"scale --profile {uniform} --network switch-100g --ranks 4"
    asked += " --strategy priority:credits=2,partition_mb=8"

    assert [row["strategy"] for row in rows_of(f"{asked} --strategy all")] == list(STRATEGIES)
    assert "priority:partition_mb=8,credits=2" in in_one_line(called(asked).stdout)


@pytest.mark.parametrize(
    ("asked", "assumed"),
    [
        ("ethernet-25g", "transport model gloo; inefficiencies: late; not counted without a device: copies,"),
        ("ethernet-25g --ideal", "transport model ideal."),
        ("dgx-h100", "each bucket takes what was measured of NCCL, or what its model makes likely; ineff"),
        (
            "dgx-h100 --model links --inefficiencies late,copies",
            "transport model nccl; inefficiencies: late, copies.",
        ),
        (
            "dgx-h100 --algorithm ring --inefficiencies none",
            "transport model nccl, 8.4us for the launch of each step and 1us for each message that leaves a",
        ),
        ("dgx-h100 --model nccl --inefficiencies none", "each bucket takes what NCCL expects."),
        (
            "dgx-a100 --model links --inefficiencies none --overhead 20us --reduction-bandwidth 100GB/s",
            "transport model nccl, 20us of overhead for each message on either side, reduction at 100GB/s.",
        ),
    ],
)
def test_what_is_assumed_is_that_of_a_real_run_or_what_was_asked_for(uniform, asked, assumed):
    told = called(f"scale --profile {uniform} --ranks 16 --strategy wait_free --network {asked}").stdout

    assert f"Assumed on {asked.split()[0]}, 16 ranks: {assumed}" in in_one_line(told)


def test_sizes_that_are_not_possible_are_said_beside_those_that_are(uniform):
    asked = f"scale --profile {uniform} --network dgx-h100 --strategy wait_free --ranks"
    why = "node 0 has 8 ranks and node 1 has 1; the model wants equally many on each"

    result = reported(f"{asked} 7-10")

    assert [row["ranks"] for row in result["rows"]] == [7, 8]
    assert [row["ranks"] for row in result["not_possible"]] == [9, 10]
    assert why in result["not_possible"][0]["problem"]
    assert result["rows"] == rows_of(f"{asked} 7,8")
    assert f"Not possible on dgx-h100, on 9–10 ranks: NCCL's model on dgx-h100: {why}" in in_one_line(
        called(f"{asked} 7-10").stdout
    )
    assert why in called(f"{asked} 9,10", code=2).stderr


def test_of_very_many_messages_less_is_counted_and_the_result_says_so(uniform):
    ring = f"scale --profile {uniform} --network ethernet-25g --algorithm ring"

    (few, many) = rows_of(f"{ring} --strategy wait_free --ranks 4,64")

    assert few["transport_model"] == "gloo"
    assert "each step's sends awaited" in many["transport_model"]
    assert "each step's sends awaited" in many["assumed"]


def test_strong_scaling_keeps_the_batch_of_the_fewest_ranks(uniform):
    asked = f"scale --profile {uniform} --network switch-100g --ranks 4,16 --ideal --strategy after_backward"

    weak, document = rows_of(asked), reported(f"{asked} --strong")
    planned = rows_of(asked.replace("scale", "plan"), "--strong", "--cache", "none", "--no-explain")

    few, many = document["rows"]
    assert few["seconds"] == weak[0]["seconds"]
    assert few["efficiency"] == pytest.approx(weak[0]["efficiency"])
    computing = 8 * 5e-3 * 4 / 16
    assert many["seconds"] == pytest.approx(weak[1]["seconds"] - 8 * 5e-3 + computing)
    assert many["efficiency"] == pytest.approx(computing / many["seconds"])
    assert {row["scaling"] for row in document["rows"]} == {"strong"}
    of_plan = {(row["scaling"], row["ranks"]): row["seconds"] for row in planned}
    assert [of_plan["strong", ranks] for ranks in (4, 16)] == [few["seconds"], many["seconds"]]
    assert document["model"].startswith("strong scaling of the batch that 4 of the profile's ranks have")


def test_in_strong_scaling_an_optimizer_is_not_divided(uniform):
    asked = f"scale --profile {uniform} --network dgx-a100 --ranks 1,8 --strategy wait_free --strong"

    with_it, without = (
        rows_of(f"{asked} --inefficiencies {inefficiencies}") for inefficiencies in ("optimizer", "none")
    )

    assert with_it[0]["efficiency"] == pytest.approx(1)
    assert with_it[1]["efficiency"] < without[1]["efficiency"]
    optimizer = with_it[0]["seconds"] - without[0]["seconds"]
    assert with_it[1]["seconds"] - without[1]["seconds"] == pytest.approx(optimizer)


def test_what_goes_by_default_uses_every_card_and_what_is_slower_is_said(uniform):
    asked = f"scale --profile {uniform} --network dgx-h100 --ranks 16"

    by_default, flat = reported(asked), reported(f"{asked} --algorithm ring")
    told = called(f"{asked} --algorithm ring").stdout

    assert {row["algorithm"] for row in by_default["rows"]} == {"nccl"}
    (carrier,) = by_default["carriers"]
    assert (carrier["channels"], carrier["cards"], carrier["cards_of"], carrier["faster"]) == (8, 8, 8, None)
    (carrier,) = flat["carriers"]
    assert (carrier["channels"], carrier["cards"], carrier["cards_of"]) == (1, 1, 8)
    assert carrier["faster"]["seconds_now"] > 1.1 * carrier["faster"]["seconds"]
    assert "times as fast as ring for all_reduce of 25 MiB (--algorithm auto takes it)" in in_one_line(told)


def test_more_parts_than_a_step_can_have_are_refused(tmp_path):
    path = tmp_path / "huge.json"
    Profile.uniform(num_buckets=1, bucket_bytes=4 * 2**40, seconds_per_bucket=1.0).save(path)

    refused = called(f"scale --profile {path} --network switch-100g --ranks 8 --strategy priority", code=2)

    assert "priority: 1048576 parts of 4 MiB; expected at most 100000" in refused.stderr
