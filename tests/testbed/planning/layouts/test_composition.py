"""Composition of a script: of a few layers, stages and micro-batches, it is what all of them take."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed
from testbed.planning.layouts import composition
from testbed.planning.layouts.composition import composed, evaluate, parts_of, wanted
from testbed.planning.layouts.passes import Passes
from testbed.planning.layouts.pipeline import Pipeline
from testbed.planning.layouts.schedule import BACKWARD, FORWARD, Pass, order_of, replay
from testbed.planning.layouts.script import ONE, TWO, Part, Recorded, Step, in_full
from testbed.planning.layouts.script_layout import ScriptLayout, script_layouts
from testbed.result import Interrupted

LLAMA = Path(__file__).parents[4] / "examples" / "llama.py"
ARGUMENTS = ("--model", "debug", "--steps", "2", "--seq-len", "2048")


LAYOUTS = [
    ("dgx-h100", (4, 1, 1, "full", 3)),
    ("switch-100g", (1, 1, 4, "none", 6)),
    ("dgx-h100", (2, 2, 1, "none", 2)),
    ("dgx-h100", (2, 1, 2, "none", 8)),
    ("switch-100g", (1, 1, 4, "full", 7)),
    ("switch-100g", (1, 1, 4, "none", 7, "gpipe")),
    ("switch-100g", (1, 1, 4, "none", 16, "interleaved1f1b")),
    ("switch-100g", (1, 1, 4, "none", 16, "interleavedzerobubble")),
    ("switch-100g", (1, 1, 4, "none", 13, "zbvzerobubble")),
    ("switch-100g", (1, 1, 4, "none", 13, "dualpipev")),
]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("network", "axes"),
    [*LAYOUTS[:2], *(pytest.param(*own, marks=pytest.mark.slow) for own in LAYOUTS[2:])],
    ids=str,
)
def test_a_composed_step_is_the_whole_one_within_two_percent(network, axes, tmp_path):
    script = tmp_path / "llama.py"
    layout = ScriptLayout(str(script), ARGUMENTS, *axes)
    sizes = f'"debug": (2048, {16 * layout.order.stages}, 16, 8, 8192,'
    script.write_text(LLAMA.read_text().replace('"debug": (64, 4, 8, 4, 192,', sizes))
    parts = parts_of([layout], network, 4, "h100")[layout]

    found = {}
    while needed := wanted({layout: parts}, found):
        found |= map(evaluate, needed)
    few = composed(layout, parts, found)

    whole = in_full(parts.whole)
    assert few.seconds == pytest.approx(whole.seconds, rel=0.02)
    assert few.bubble_seconds == pytest.approx(whole.bubble_seconds, abs=0.02 * whole.seconds)
    assert few.sequence_seconds == pytest.approx(whole.sequence_seconds, rel=0.02)
    nearly = 0.04 if layout.schedule == "zbvzerobubble" else 0.02  # its last rank holds more from four on
    assert few.peak_bytes == pytest.approx(whole.peak_bytes, rel=nearly)


LAWS = st.tuples(*[st.integers(0, 9)] * 6)


@given(LAWS, st.integers(2, 40), st.sampled_from([2, 4, 8]), st.integers(2, 50))
def test_what_is_linear_in_layers_stages_and_micro_batches_is_composed_exactly(law, depth, pp, rounds):
    layout = ScriptLayout("train.py", (), 16 // pp, 8, pp, "none", rounds * pp, "interleaved1f1b")
    parts = parts_of([layout], "dgx-h100", 128, "h100")[layout]

    step = composed(layout, parts, {part: _recorded(part, law, 2 * depth * pp) for part in parts.wanted({})})

    assert step == _step(law, depth, pp, layout.batch)


@given(st.integers(0, 9), st.integers(0, 9))
def test_what_goes_by_one_over_data_parallelism_is_composed_exactly(fixed, shared):
    layouts = script_layouts(LLAMA, ["--tp", "8", "--schedule", "interleaved1f1b"], 256, 64, 256)
    parts = parts_of(layouts, "dgx-h100", 256, "h100")

    def took(dp):
        return Step(*[fixed + shared / dp] * 6)

    for layout in (own for own in layouts if parts[own].least is not None):
        wanted = parts[layout].wanted({})
        recorded = {own: Recorded(*[took(own.layout.dp)] * 2, (ONE, TWO), 80) for own in wanted}
        step = composed(layout, parts[layout], recorded)
        assert tuple(step) == pytest.approx(tuple(took(layout.dp)))


@given(
    st.tuples(*[st.integers(0, 9)] * 4), st.integers(1, 9), st.integers(2, 6), st.integers(0, 20), st.data()
)
def test_a_pipeline_whose_passes_are_linear_in_layers_is_replayed_exactly(law, depth, pp, more, data):
    layout = ScriptLayout("train.py", (), 1, 1, pp, batch=pp + more)
    least, message = replace(layout, pp=2, batch=2), data.draw(st.integers(0, 3))
    rest = data.draw(st.integers(0, 9))

    def took(layers, of):
        takes = {
            (kind, stage, is_first): _pass(law, kind, layers, stage in (0, of.pp - 1), is_first)
            for kind in (FORWARD, BACKWARD)
            for stage in range(of.pp)
            for is_first in (True, False)
        }
        found = replay(order_of("1f1b", of.pp, of.batch), takes, message)
        held = found.most_bytes[0] + of.batch, found.most_bytes[-1] + of.batch
        step = Step(found.seconds + rest, found.compute_seconds, found.waited_seconds, 1, *held)
        return step, Passes(takes, message, held, (0, 0), dict.fromkeys(range(of.pp), 1))

    few, more_layers = (took(layers, least) for layers in (ONE, TWO))
    recorded = Recorded(few[0], more_layers[0], (ONE, TWO), depth * pp, (few[1], more_layers[1]))

    step = Pipeline(least, recorded).step(layout, depth)

    assert tuple(step) == pytest.approx(tuple(took(depth, layout)[0]))


def _pass(law, kind, layers, is_end, is_first):
    """Return a pass that grows by *law* with layers, and at the ends and at first by more."""
    forward, backward, end, first = law
    seconds = layers * (forward if kind == FORWARD else backward) + end * is_end + first * is_first * layers
    kept = layers if kind == FORWARD else -layers
    return Pass(seconds, seconds, kept, max(kept, 0))


@pytest.mark.parametrize("schedule", ["interleaved1f1b", "dualpipev"])
@pytest.mark.parametrize("pp", [2, 3])
def test_pipelines_of_as_few_ranks_as_are_recorded_are_composed_too(pp, schedule, monkeypatch):
    law = (1, 2, 3, 4, 5, 6)
    layout = ScriptLayout("train.py", (), 8, 1, pp, "none", 5 * pp, schedule)
    monkeypatch.setattr(composition, "record", lambda part: _recorded(part, law, 24 * pp))

    parts = parts_of([layout], "dgx-h100", 8 * pp, "h100")[layout]
    step = composed(layout, parts, dict(map(evaluate, parts.wanted({}))))

    assert step == _step(law, 12, pp, layout.batch)


def test_recordings_are_shared_over_data_parallelism_where_stages_fill_nodes():
    whole_nodes, parts_of_nodes = (
        {
            own: parts
            for own, parts in parts_of(
                script_layouts(LLAMA, ["--tp", "2"], ranks, 64, 256), "dgx-h100", ranks, "h100"
            ).items()
            if own.pp > 1 and own.recompute == "none" and own.schedule == "1f1b"
        }
        for ranks in (128, 8)
    )

    assert {own.pp for own in whole_nodes} == {2, 4, 8, 16}
    wanted = {part for parts in whole_nodes.values() for part in parts.wanted({})}
    assert {(part.layout.pp, part.layout.dp) for part in wanted} == {(2, 4), (2, 8), (2, 32)}
    assert {parts.wanted({}) == (parts.whole,) for parts in parts_of_nodes.values()} == {True}


def test_an_interrupted_search_shows_the_layouts_that_are_composed(monkeypatch):
    law, looked_at = (1, 1, 1, 1, 1, 1), list[Part]()

    def ends(part):
        looked_at.append(part)
        if len(looked_at) > 4:
            raise KeyboardInterrupt
        return part, None if part.stands_in else _step(law, 80, 1, part.layout.batch)

    monkeypatch.setattr(composition, "evaluate", ends)

    with pytest.raises(Interrupted) as interrupted:
        testbed.plan(LLAMA, layouts=True, network=["dgx-h100"], ranks="256", workers=1)

    assert interrupted.value.result.body["stopped"] == "interrupted after 2 of 210 layouts"
    assert len(list(interrupted.value.result.rows)) == 2


def _step(law, layers, stages, batch):
    """Return a step that grows by *law* with layers, stages and micro-batches."""
    base, layer, stage, micro_batch, layer_of_stage, layer_of_micro_batch = law
    grown = base + layer * layers + stages * (stage + layer_of_stage * layers)
    return Step(*[grown + batch * (micro_batch + layer_of_micro_batch * layers)] * 6)


def _recorded(part, law, total):
    """Return what runs of *part* take by *law*, of a script with so many layers in all."""
    few, more = (_step(law, number, part.layout.pp, part.layout.batch) for number in (ONE, TWO))
    return Recorded(few, more, (ONE, TWO), total)
