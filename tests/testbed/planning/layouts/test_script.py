"""Layouts of a script: those that it has options for, and the best of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.errors import UsageError
from testbed.planning.layouts.script import ScriptLayout, Step, script_layouts
from testbed.report.script_layouts import script_layouts_result

LLAMA = Path(__file__).parents[4] / "examples" / "llama.py"


def test_layouts_of_a_script_hold_its_tokens_and_what_is_given_already() -> None:
    layouts = script_layouts(LLAMA, ["--model", "8b", "--tp", "2"], 16, 8192, 32)

    assert {own.tp for own in layouts} == {2}
    assert {own.pp for own in layouts} == {1, 2, 4, 8}
    assert all(own.dp * own.pp == 8 and own.dp * own.batch == 32 for own in layouts)
    assert all(own.arguments[:4] == ("--model", "8b", "--seq-len", "8192") for own in layouts)
    with pytest.raises(UsageError, match="--batch: give --tokens-per-step"):
        script_layouts(LLAMA, ["--batch", "2"], 16, 8192, 32)


def test_the_best_fits_and_where_none_does_the_answer_says_so() -> None:
    small, large = (ScriptLayout("train.py", (), 1, 2, batch=batch) for batch in (1, 2))
    steps = {small: Step(2, 2, 1, 8 * 2**30, 0), large: Step(1, 1, 0.5, 0, 16 * 2**30)}

    fitting, none = (
        script_layouts_result("train.py", "dgx-h100", 100, memory * 2**30, steps, {}) for memory in (10, 4)
    )

    assert [row["fits"] for row in fitting.rows] == [True, False]
    assert fitting.answer == f"{small}: 2.00 s a step, 25 tokens/s/GPU, MFU 50.0 %; limited by computation."
    assert none.answer == f"No layout fits 4 GiB: {small} needs least, 8 GiB."


def test_a_script_without_options_for_its_layout_says_which_it_needs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")

    with pytest.raises(UsageError, match="expected options --batch and --tp or --pp"):
        testbed.plan(script, layouts=True, network=["dgx-h100"], ranks="8")


def test_a_model_cannot_be_confirmed_nor_a_script_corrected() -> None:
    asked = {"layouts": True, "network": ["dgx-h100"], "ranks": "8"}

    with pytest.raises(UsageError, match=r"--confirm: gpt2-xl\.toml is a model"):
        testbed.plan(Path("gpt2-xl.toml"), confirm=1, **asked)
    with pytest.raises(UsageError, match=r"--only is for a model's file"):
        testbed.plan(LLAMA, only=["tp=1"], **asked)
