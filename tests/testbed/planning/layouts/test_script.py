"""Layouts of a script: those that it has options for, and the best of them."""

from dataclasses import replace
from pathlib import Path

import pytest

import testbed
from testbed.errors import UsageError
from testbed.planning.layouts.script import Step
from testbed.planning.layouts.script_layout import ScriptLayout, script_layouts
from testbed.report.script_layouts import script_layouts_result
from testbed.result import Plot

LLAMA, MOE = (Path(__file__).parents[4] / "examples" / f"{name}.py" for name in ("llama", "moe"))


def test_layouts_of_a_script_hold_its_tokens_and_what_is_given_already():
    layouts = script_layouts(LLAMA, ["--model", "8b", "--tp", "2"], 16, 8192, 32)

    assert {own.tp for own in layouts} == {2}
    assert {own.pp for own in layouts} == {1, 2, 4, 8}
    assert all(own.dp * own.pp == 8 and own.dp * own.batch == 32 for own in layouts)
    assert all(own.arguments[:4] == ("--model", "8b", "--seq-len", "8192") for own in layouts)
    with pytest.raises(UsageError, match="--batch: give --tokens-per-step"):
        script_layouts(LLAMA, ["--batch", "2"], 16, 8192, 32)


def test_schedules_are_tried_that_the_script_names_and_that_suit_its_micro_batches():
    found = script_layouts(LLAMA, ["--tp", "1"], 8, 64, 24)
    held = script_layouts(LLAMA, ["--tp", "1", "--schedule=DualPipeV"], 8, 64, 24)

    plain, loops = {"1f1b"}, {"interleaved1f1b", "interleavedzerobubble"}
    there_and_back = {"zbvzerobubble", "dualpipev"}
    of_ranks = {pp: {own.schedule for own in found if own.pp == pp} for pp in (1, 2, 4, 8)}
    assert of_ranks == {1: {""}} | dict.fromkeys((2, 4, 8), plain | loops | there_and_back)
    assert {own.schedule for own in held if own.pp > 1} == {"dualpipev"}
    few, odd = (
        {own.schedule for own in script_layouts(LLAMA, ["--tp", "1"], 8, 64, number) if own.pp == 8}
        for number in (8, 9)
    )
    assert (few, odd) == (plain | loops, plain)
    with pytest.raises(UsageError, match=r"--schedule zb: expected one of 1f1b, gpipe"):
        script_layouts(LLAMA, ["--schedule", "zb"], 8, 64, 24)


def test_experts_are_divided_among_ranks_of_one_stage_and_routed_as_stated():
    laws = ["power-law:1", "power-law:1.2"]
    found = script_layouts(MOE, ["--tp", "2", "--schedule", "1f1b"], 16, 64, 32, laws)

    assert {(own.pp, own.ep) for own in found} == {
        (pp, ep) for pp in (1, 2, 4, 8) for ep in (1, 2, 4, 8, 16) if 16 // pp % ep == 0
    }
    assert all(own.arguments[own.arguments.index("--ep") + 1] == str(own.ep) for own in found)
    assert {own.routing for own in found} == {*laws}
    assert len(found) == 2 * len({replace(own, routing=None) for own in found})


def test_the_best_fits_and_is_drawn_and_where_none_fits_the_answer_says_so():
    small, large = (ScriptLayout("train.py", (), 1, 2, batch=batch) for batch in (1, 2))
    steps = {small: Step(2, 2, 0, 1, 8 * 2**30, 0), large: Step(1, 1, 0, 0.5, 0, 16 * 2**30)}

    fitting, none = (
        script_layouts_result("train.py", "dgx-h100", 100, memory * 2**30, steps, {}) for memory in (10, 4)
    )

    (shares,) = (own.describe() for own in fitting.parts if isinstance(own, Plot))
    lengths = [bars[-1][1] for bars in zip(*(bars for _, bars in shares.pieces()), strict=True)]
    assert lengths == pytest.approx([row["seconds"] for row in fitting.rows])
    assert [row["fits"] for row in fitting.rows] == [True, False]
    assert fitting.answer == f"{small}: 2.00 s a step, 25 tokens/s/GPU, MFU 50.0 %; limited by computation."
    assert none.answer == f"No layout fits 4 GiB: {small} needs least, 8 GiB."


@pytest.mark.parametrize(
    ("question", "options", "said"),
    [
        ("train.py", {}, "expected options --batch and --tp or --pp"),
        ("gpt2-xl.toml", {"confirm": 1}, r"--confirm: gpt2-xl\.toml is a model"),
        (LLAMA, {"only": ["tp=1"]}, "--only is for a model's file"),
        (MOE, {"imbalance": "1.5"}, "--imbalance 1.5: .*moe.py sends its tokens itself"),
        (
            LLAMA,
            {"imbalance": "power-law:1.2"},
            "--imbalance is of experts, and .* no option --ep",
        ),
    ],
)
def test_what_is_not_for_such_a_script_or_model_is_refused_by_name(
    question, options, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)")

    with pytest.raises(UsageError, match=said):
        testbed.plan(Path(question), layouts=True, network=["dgx-h100"], ranks="8", **options)


def test_a_script_runs_two_steps_unless_it_is_given_others():
    plain, given = (script_layouts(LLAMA, own, 8, 64, 24)[0] for own in ([], ["--steps=5"]))

    assert plain.arguments[-4:-2] == ("--steps", "2")
    assert [own for own in given.arguments if own.startswith("--steps")] == ["--steps=5"]
