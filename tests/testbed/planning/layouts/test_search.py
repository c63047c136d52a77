"""Search of layouts: all fit and use all ranks, measured steps correct the others, the command says it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import testbed
from testbed.errors import UsageError
from testbed.planning.layouts.belief import Belief, worth_measuring
from testbed.planning.layouts.search import AXES, Search, evaluate
from testbed.planning.layouts.transformer import read_model
from testbed.result.parts import fitted

SEARCH = Search(read_model("gpt2-xl")[1], "dgx-h100", 16, 1024, 64)


@pytest.fixture(scope="module")
def found():
    return evaluate((SEARCH, list(SEARCH.layouts(Counter()))))


def test_layouts_use_all_ranks_fit_and_are_all_different(found):
    assert len({own.layout for own in found}) == len(found) > 100
    for own in found:
        assert own.layout.ranks == 16
        assert own.peak_bytes <= 80 * 2**30
        assert own.layout.micro_batch * own.layout.dp <= 64


def test_layouts_that_do_not_fit_or_have_unequal_parts_on_nodes_are_counted_and_axes_can_be_held():
    excluded, linked = Counter[str](), Counter[str]()
    small = replace(SEARCH, memory_bytes=8 * 2**30, only=(("zero", ("0",)),))
    uneven = Search(SEARCH.model, "dgx-h100", 24, 1024, 96)

    kept, found = list(small.layouts(excluded)), evaluate((uneven, list(uneven.layouts(excluded))))

    assert excluded["memory"] > 0
    assert {own.zero for own in kept} <= {0}
    assert {own.layout.dp for own in found} >= {3, 6, 12, 24}
    assert excluded["groups with unequal parts on nodes"] > 0
    assert list(replace(uneven, network="switch-100g", device="h100").layouts(linked))
    assert "groups with unequal parts on nodes" not in linked


def test_a_measured_step_is_believed_and_moves_those_that_lose_to_the_same(found):
    first, *_ = sorted(found, key=lambda own: own.seconds)
    alike = next(own for own in found if own.family == first.family and own is not first)
    before = Belief.before()

    after = before.after(first, 1.5 * first.seconds)

    assert before.seconds(first) == pytest.approx(first.seconds)
    assert 1.3 * first.seconds < after.seconds(first) <= 1.5 * first.seconds
    assert after.seconds(alike) > before.seconds(alike)
    assert after.error(first) < before.error(first)


def test_the_best_is_measured_first_and_then_what_may_be_better(found):
    chosen = worth_measuring(found, Belief.before())

    assert chosen[0] is min(found, key=lambda own: own.seconds)
    assert len({own.layout for own in chosen}) == 3
    assert worth_measuring(found[:1], Belief.before()) == found[:1]


def asked(model="gpt2-xl", **options):
    given = {"network": ["dgx-h100"], "ranks": "16", "seq": 1024, "tokens_per_step": "64K", "workers": 1}
    return testbed.plan(Path(f"{model}.toml"), layouts=True, **{**given, **options})


def test_the_command_gives_rows_by_time_families_and_three_to_measure_and_takes_them(tmp_path):
    said = asked()
    rows = list(said.rows)
    times = [row["seconds"] for row in rows]
    slower = tmp_path / "measured.csv"
    columns = [name for name in AXES if name != "ep"]
    lines = [",".join([*(str(row[name]) for name in columns), "100"]) for row in said.tables["measure"]]
    slower.write_text("\n".join([",".join([*columns, "seconds"]), *lines]))

    corrected = asked(measured=slower)

    assert times == sorted(times)
    assert sum(rows[0]["lost_to"].values()) == pytest.approx(times[0])
    assert next(row["times_the_best"] for row in said.tables["families"]) == 1
    assert len(said.tables["measure"]) == 3
    assert [row["seconds"] for row in corrected.rows if row["measured_seconds"]] == [100.0] * 3
    assert next(iter(corrected.rows))["measured_seconds"] is None


MIXTURE = {
    "ranks": "32", "only": ["ep=8", "pp=1,2", "schedule=1f1b,zb-h1", "zero=1,3", "micro_batch=1"],
    "seq": 4096, "tokens_per_step": "1M", "imbalance": "1,2.5,power-law:1.2",
}  # fmt: skip


def test_imbalances_of_a_mixture_are_rows_and_the_best_of_each_is_said():
    said = asked("mixtral-8x7b", **MIXTURE)

    seconds = dict[tuple[object, ...], dict[str, float]]()
    for row in said.rows:
        seconds.setdefault(tuple(row[axis] for axis in AXES[:-1]), {})[row["imbalance"]] = row["seconds"]
    times = {name: [own[name] for own in seconds.values() if name in own] for name in ("1", "2.5")}
    assert all(own["1"] <= own["2.5"] * (1 + 1e-9) for own in seconds.values() if "2.5" in own)
    assert min(times["1"]) < min(times["2.5"])
    assert "imbalance 2.5: " in said.answer
    assert "imbalance power-law:1.2: " in said.answer
    assert {row["imbalance"] for row in said.tables["measure"]} == {"1"}
    assert {row["schedule"] for row in said.rows if row["zero"] == 3} == {"1f1b"}


def test_a_page_names_the_layout_of_each_row_of_losses_which_a_terminal_has_no_room_for():
    parts = asked(only=["tp=1", "cp=1", "zero=1"]).parts

    page, terminal = (
        next(own for own in fitted(parts, place) if getattr(own, "title", "").startswith("Lost,"))
        for place in (None, Console(width=80))
    )

    best = next(own for own in fitted(parts, None) if getattr(own, "title", "").startswith("Best of"))
    assert [row[0] for row in page.rows] == [row[0] for row in best.rows]
    assert [row[1:] for row in page.rows] == list(terminal.rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranks": "8,16"}, "expected one number of ranks"),
        ({"network": ["dgx-h100", "aws-p5"]}, "expected one network"),
        ({"tokens_per_step": "1000"}, "expected a multiple of --seq 1024"),
        ({"only": ["width=3"]}, "expected AXIS=VALUE"),
        ({"only": ["dp=7"]}, "no layout that --only leaves fits"),
        ({"only": ["tp=two"]}, "--only tp=two: expected tp of numbers"),
        ({"only": ["schedule=zb"]}, "expected schedule of 1f1b, interleaved, zb-h1"),
        ({"only": ["schedule=zb-h1", "recompute=full"]}, "zero bubble with ZeRO 2 or 3, or recomputing"),
        ({"only": ["imbalance=2"]}, "expected AXIS=VALUE,… with an axis of .*, placement$"),
        ({"imbalance": "1,2"}, "--imbalance is of experts, and gpt2-xl has none"),
        ({"memory": "0"}, "--memory 0: expected what a GPU has"),
        ({"ideal": True}, "--ideal and --layouts .* --framework ideal"),
        ({"price_per_gpu_hour": ["2"]}, "--price-per-gpu-hour and --layouts"),
        ({"goodput": True}, "--goodput and --layouts"),
        ({"explain": False}, "--explain and --layouts"),
        ({"memory": "1GB"}, "for memory"),
        ({"profile": ["gpt2-xl"]}, "leave one out"),
        ({"network": ["ethernet-25g"]}, "give --device"),
    ],
)
def test_what_cannot_be_planned_says_why(options, said):
    with pytest.raises(UsageError, match=said):
        asked(**options)


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ("gpt2-xl", "a,b\n1,2", "expected columns of axes"),
        ("gpt2-xl", "dp,seconds\n16,fast", "row 1: expected numbers above 0"),
        ("gpt2-xl", "dp,schedule,seconds\n16,gpipe,1", "row 1: schedule gpipe: expected one of 1f1b, inter"),
        ("gpt2-xl", "dp,seconds\n8,1", "row 1: expected dp × tp × pp × cp = 16 ranks"),
        ("mixtral-8x7b", "dp,pp,ep,zero,seconds\n32,1,8,1,9", "row 1: no imbalance: expected one of 1, 2.5,"),
    ],
)
def test_measured_steps_that_cannot_be_read_say_where(model, text, said, tmp_path):
    file = tmp_path / "measured.csv"
    file.write_text(text)

    with pytest.raises(UsageError, match=said):
        asked(model, measured=file, **(MIXTURE if model == "mixtral-8x7b" else {}))
