"""Composition of a script: of a few layers, stages and micro-batches, it is what all of them take."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed
from testbed.planning.layouts import composition
from testbed.planning.layouts.composition import Found, composed, evaluate, parts_of
from testbed.planning.layouts.script import FEW, MORE, Part, Recorded, Step, in_full
from testbed.planning.layouts.script_layout import ScriptLayout, script_layouts
from testbed.result import Interrupted

LLAMA = Path(__file__).parents[4] / "examples" / "llama.py"
ARGUMENTS = ("--model", "debug", "--steps", "2", "--seq-len", "2048")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("network", "axes"),
    [
        ("dgx-h100", (4, 1, 1, "full", 3)),
        ("switch-100g", (1, 1, 4, "none", 6)),
        pytest.param("dgx-h100", (2, 2, 1, "none", 2), marks=pytest.mark.slow),
        pytest.param("dgx-h100", (2, 1, 2, "none", 8), marks=pytest.mark.slow),
        pytest.param("switch-100g", (1, 1, 4, "full", 7), marks=pytest.mark.slow),
        *(
            pytest.param("switch-100g", (1, 1, 4, "none", batch, schedule), marks=pytest.mark.slow)
            for schedule, batch in (("gpipe", 7), ("interleaved1f1b", 16), ("interleavedzerobubble", 16))
        ),
        *(
            pytest.param("switch-100g", (1, 1, 4, "none", 13, schedule), marks=pytest.mark.slow)
            for schedule in ("zbvzerobubble", "dualpipev")
        ),
    ],
    ids=str,
)
def test_a_composed_step_is_the_whole_one_within_two_percent(
    network: str, axes: tuple[int, int, int, str, int] | tuple[int, int, int, str, int, str], tmp_path: Path
) -> None:
    script = tmp_path / "llama.py"
    layout = ScriptLayout(str(script), ARGUMENTS, *axes)
    sizes = f'"debug": (2048, {16 * layout.order.stages}, 16, 8, 8192,'
    script.write_text(LLAMA.read_text().replace('"debug": (64, 4, 8, 4, 192,', sizes))
    parts = parts_of([layout], network, 4, "h100")[layout]

    few = composed(layout, parts, dict(map(evaluate, dict.fromkeys(parts.all))))

    whole = in_full(Part(layout, layout.pp, layout.batch, network, 4, "h100"))
    assert isinstance(few, Step)
    assert few.seconds == pytest.approx(whole.seconds, rel=0.02)
    assert few.bubble_seconds == pytest.approx(whole.bubble_seconds, abs=0.02 * whole.seconds)
    assert few.sequence_seconds == pytest.approx(whole.sequence_seconds, rel=0.02)
    nearly = 0.04 if layout.schedule == "zbvzerobubble" else 0.02  # its last rank holds more from four on
    assert few.peak_bytes == pytest.approx(whole.peak_bytes, rel=nearly)


@given(
    st.tuples(*[st.integers(0, 9)] * 6), st.integers(3, 40), st.sampled_from([2, 4, 8]), st.integers(1, 50)
)
def test_what_is_linear_in_layers_stages_and_micro_batches_is_composed_exactly(
    law: tuple[int, ...], depth: int, pp: int, more: int
) -> None:
    layout = ScriptLayout("train.py", (), 16 // pp, 8, pp, "none", pp + more)
    parts = parts_of([layout], "dgx-h100", 128, "h100")[layout]

    step = composed(layout, parts, {part: _recorded(part, law, depth * pp) for part in parts.all})

    assert step == _step(law, depth, pp, layout.batch)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved1f1b", "dualpipev"])
@pytest.mark.parametrize("pp", [2, 3])
def test_pipelines_of_as_few_ranks_as_are_recorded_are_composed_too(
    pp: int, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = (1, 2, 3, 4, 5, 6)
    layout = ScriptLayout("train.py", (), 8, 1, pp, "none", 5 * pp, schedule)
    monkeypatch.setattr(composition, "record", lambda part: _recorded(part, law, 12 * pp))

    parts = parts_of([layout], "dgx-h100", 8 * pp, "h100")[layout]
    step = composed(layout, parts, dict(map(evaluate, dict.fromkeys(parts.all))))

    assert step == _step(law, 12, pp, layout.batch)


def test_what_stages_and_micro_batches_add_is_shared_where_stages_fill_nodes() -> None:
    whole_nodes, parts_of_nodes = (
        {
            own: parts
            for own, parts in parts_of(
                script_layouts(LLAMA, ["--tp", "2", "--schedule", "1F1B"], ranks, 64, 256),
                "dgx-h100",
                ranks,
                "h100",
            ).items()
            if own.pp > 1 and own.recompute == "none"
        }
        for ranks in (128, 8)
    )

    assert {own.pp for own in whole_nodes} == {2, 4, 8, 16}
    assert len({parts.wider for parts in whole_nodes.values()}) == 1
    assert {parts.own.stages for parts in whole_nodes.values()} == {2}
    assert {parts.own.stages == own.pp for own, parts in parts_of_nodes.items()} == {True}


def test_an_interrupted_search_shows_the_layouts_that_are_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    law, looked_at = (1, 1, 1, 1, 1, 1), list[Part]()

    def ends(part: Part) -> tuple[Part, Found]:
        looked_at.append(part)
        if len(looked_at) > 4:
            raise KeyboardInterrupt
        return part, _step(law, 80, 1, part.batch) if part.stages == part.layout.pp else None

    monkeypatch.setattr(composition, "evaluate", ends)

    with pytest.raises(Interrupted) as interrupted:
        testbed.plan(LLAMA, layouts=True, network=["dgx-h100"], ranks="256", workers=1)

    assert interrupted.value.result.body["stopped"] == "interrupted after 3 of 210 layouts"
    assert len(list(interrupted.value.result.rows)) == 3


def _step(law: tuple[int, ...], layers: int, stages: int, batch: int) -> Step:
    """Return a step that grows by *law* with layers, stages and micro-batches."""
    base, layer, stage, micro_batch, layer_of_stage, layer_of_micro_batch = law
    grown = base + layer * layers + stages * (stage + layer_of_stage * layers)
    return Step(*[grown + batch * (micro_batch + layer_of_micro_batch * layers)] * 6)


def _recorded(part: Part, law: tuple[int, ...], layers: int) -> Recorded:
    """Return what runs of *part* take by *law*, of a script with so many *layers*."""
    few, more = (_step(law, number, part.stages, part.batch) for number in (FEW, MORE))
    return Recorded(few, more, (FEW, MORE), -(-layers // part.stages))
