"""Predictions of measured rows, and fits to them: on rows that the model itself has made."""

import csv
import json

import pytest

from benchmarks.lab.fit import fit
from benchmarks.lab.predict import SETS, predict
from benchmarks.lab.predicted import steps
from benchmarks.lab.predicted.devices import device_of
from benchmarks.lab.predicted.products import product_us
from benchmarks.lab.predicted.rows import is_kept_back
from benchmarks.lab.predicted.steps import training_of
from benchmarks.lab.regret import regret
from benchmarks.lab.truth import truth
from testbed.errors import UsageError
from testbed.planning.layouts.framework import peak_bytes

LLAMA = {
    "model": "1B", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 32, "ffn": 8192, "vocab": 131072,
    "tied": 1, "nodes": 1, "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "zero": 1, "mbs": 1, "ga": 32, "seq": 4096,
}  # fmt: skip
ROWS = {
    "gemm": {"gpu": "h100_sxm", "dtype": "bfloat16", "m": 4096, "n": 4096, "k": 4096},
    "gemm_sustained": {"gpu": "gb200", "dtype": "fp8", "m": 4096, "n": 4096, "k": 4096},
    "attention": {
        "gpu": "h200_sxm", "dtype": "bfloat16", "batch": 2, "seq": 4096, "heads": 32, "kv_heads": 8,
        "head_dim": 128, "causal": 1, "window": 0, "kernel": "fa3",
    },
    "moe": {
        "gpu": "b200_sxm", "dtype": "nvfp4", "tokens": 1024, "hidden": 4096, "inter": 1536, "topk": 8,
        "experts": 128, "tp": 1, "ep": 8, "distribution": "power_law_1.2", "framework": "vllm",
        "kernel": "new",
    },
    "nccl_one_node": {"gpu": "a100_sxm", "collective": "all_gather", "gpus": 8, "bytes": 2**24},
    "deepep_normal": {
        "gpu": "h100_sxm", "nodes": 2, "gpus": 16, "hidden": 7168, "tokens": 4096, "topk": 8, "experts": 256,
        "dispatch_sms": 24, "combine_sms": 24,
    },
    "ultrascale": LLAMA,
}  # fmt: skip


def table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def written(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def in_words(row):
    """Return a row as it is read from a table."""
    return {name: str(value) for name, value in row.items()}


@pytest.mark.parametrize("name", list(ROWS))
def test_each_set_gets_a_column_of_what_is_predicted_and_keeps_its_own(name, tmp_path):
    row = {**ROWS[name], SETS[name].measured: 100.0}

    predict(name=name, file=table(tmp_path / "rows.csv", [row] * 3), output=tmp_path / "out.csv", sample=2)

    first, second = written(tmp_path / "out.csv")
    assert first == second
    assert {key: str(value) for key, value in row.items()}.items() <= first.items()
    assert float(first["predicted"]) > 0


def test_what_has_no_file_is_predicted_as_the_nearest(tmp_path):
    rows = table(tmp_path / "rows.csv", [{**ROWS["gemm"], "gpu": "l40s"}, {**ROWS["gemm"], "dtype": "fp6"}])

    found = predict(name="gemm", file=rows, output=tmp_path / "out.csv")

    assert "l40s as a100" in str(found.parts)
    with pytest.raises(UsageError, match="expected columns gpu, dtype, batch"):
        predict(name="attention", file=rows, output=tmp_path / "out.csv")


def test_anybodys_rows_are_judged_by_family_limit_and_parallelism_and_foretold_before_they_are_read(tmp_path):
    steps = [
        {**LLAMA, "nodes": nodes, "gpus": 8 * nodes, "dp": 8 * nodes, "ga": 32 // nodes,
         "failed": 0, "failure_contradicted": "", "peak_gb": 20.0, "tokens_per_s_per_gpu": 20_000.0 / nodes}
        for nodes in (1, 4)
    ]  # fmt: skip
    products = [{**ROWS["gemm"], "time_us": 100.0 * factor} for factor in (1, 2)]
    digests = []
    for factor in (1, 2):
        for row in steps:
            row["tokens_per_s_per_gpu"] *= factor
        files = [table(tmp_path / "mine.csv", steps), table(tmp_path / "other.csv", products)]

        found = truth(files=files, predictions=tmp_path / "foretold.json")

        foretold = json.loads((tmp_path / "foretold.json").read_text())
        digests.append(foretold["mine.csv"]["sha256"])
        assert not any("tokens_per_s_per_gpu" in row for row in foretold["mine.csv"]["rows"])

    assert digests[0] == digests[1]
    assert [(row["set"], row["parallelism"]) for row in found.rows] == [
        *[("ultrascale", "dp")] * 2, *[("gemm", "")] * 2
    ]  # fmt: skip
    assert all(row["limit"] for row in found.rows)
    assert "points (median of 1)" in str(found.parts)
    with pytest.raises(UsageError, match="expected the columns of a set"):
        truth(files=[table(tmp_path / "odd.csv", [{"a": 1}])], predictions=tmp_path / "foretold.json")


def test_a_step_that_does_not_fit_or_leaves_stages_empty_has_no_speed(tmp_path):
    rows = [
        {**LLAMA, "mbs": 16, "ga": 2},
        {**LLAMA, "dp": 1, "pp": 16, "ga": 256, "gpus": 16, "nodes": 2},
        {**LLAMA, "dp": 2, "pp": 4, "ga": 2},  # fewer micro-batches than stages behind the first
    ]

    predict(name="ultrascale", file=table(tmp_path / "rows.csv", rows), output=tmp_path / "out.csv")

    assert [(row["predicted"], row["predicted_fits"]) for row in written(tmp_path / "out.csv")] == [
        ("", "0")
    ] * 3


def test_stages_are_cut_at_equal_parts_of_the_cost_and_hold_all_layers():
    for stages in (1, 2, 4, 8):
        training = training_of(in_words({**LLAMA, "pp": stages}))

        assert sum(training.stages) == 16
        assert not training.leaves_stages_empty
    assert training.stages == (3, 2, 3, 2, 3, 2, 1, 0)  # the head costs as much as four layers


def test_products_take_what_their_framework_does_besides():
    def us(**changes):
        row = {"gpu": "h200_sxm", "dtype": "fp8", "m": "64", "n": "64", "k": "64", **changes}
        return product_us(row, "burst")

    launch_us = device_of("h200_sxm").launch_ps / 1e6
    assert us(framework="trtllm") == pytest.approx(us(framework="sglang") + 3 * launch_us, rel=0.01)
    assert us(framework="vllm", dtype="fp8_block") > 10 * us(framework="sglang", dtype="fp8_block")
    large = {"dtype": "fp8_block", "m": "16384", "n": "16384", "k": "16384"}
    assert us(framework="vllm", **large) == us(framework="sglang", **large)


LAYOUTS = [(8, 1, 1), (4, 2, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2), (2, 1, 4)]


def test_where_steps_take_what_is_predicted_the_planned_layout_is_the_best(tmp_path):
    rows = [{**LLAMA, "dp": dp, "tp": tp, "pp": pp, "ga": 256 // dp, "failed": 0} for dp, tp, pp in LAYOUTS]
    for row in rows:
        row["tokens_per_s_per_gpu"] = SETS["ultrascale"].predict(in_words(row))["predicted"]

    [cell] = regret(file=table(tmp_path / "rows.csv", rows)).rows

    assert cell == {
        "model": "1B", "nodes": 1, "layouts": 6, "regret": 0, "failed": 0, "regret_measured": 0
    }  # fmt: skip


def test_a_fit_finds_constants_that_say_what_rows_have_measured_and_never_sees_a_quarter(tmp_path):
    sizes = [(m, n, k) for m in (64, 1024, 4096, 16384) for n in (1024, 5120, 16384) for k in (2048, 8192)]
    rows = [{**ROWS["gemm"], "m": m, "n": n, "k": k, "reference": 1} for m, n, k in sizes]
    for row in rows:
        row["time_us"] = product_us(in_words(row), "burst")

    found = fit(name="gemm", file=table(tmp_path / "rows.csv", rows))

    [one] = found.rows
    kept = sum(is_kept_back(in_words(row), ("m", "n", "k")) for row in rows)
    assert one["kept_back"]["count"] == kept
    assert one["seen"]["count"] == len(rows) - kept
    assert one["kept_back"]["median"] < 0.02


def test_a_fit_finds_what_steps_hold_of_memory(tmp_path):
    others = [(1, 8, 1), (1, 4, 2), (1, 2, 4)]
    rows = [
        {**LLAMA, "dp": dp, "tp": tp, "pp": pp, "mbs": mbs, "ga": 256 // dp // mbs, "zero": zero}
        for dp, tp, pp in [*LAYOUTS, *others]
        for mbs in (1, 2)
        for zero in (0, 1)
    ]
    for row in rows:
        row["peak_gb"] = peak_bytes(training_of(in_words(row)), steps.FRAMEWORK.memory) / 2**30

    file = table(tmp_path / "rows.csv", rows)
    result = fit(name="ultrascale", file=file)

    [one] = result.rows
    assert result.answer == "1 kind fitted"
    assert one["kept_back"]["median"] < 0.02
    assert one["constants"]["hidden"] == pytest.approx(steps.FRAMEWORK.memory.hidden, rel=0.1)
    with pytest.raises(UsageError, match="got at most 0, with --gpu h100_sxm"):
        fit(name="ultrascale", file=file, gpu="h100_sxm")
