"""Layouts: groups divide the ranks, what is lost adds up, pipelines have a closed form, files are read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import load_network
from sim.files.device_file import load_device
from testbed.errors import UsageError
from testbed.planning.layouts.framework import FRAMEWORKS, fullest_bytes, peak_bytes
from testbed.planning.layouts.layout import EVEN, PLACEMENTS, ZERO_BUBBLE, Imbalance, Layout, Training
from testbed.planning.layouts.machine import Kernels, Messages
from testbed.planning.layouts.step import (
    BUBBLE,
    COMPUTATION,
    DATA,
    OPTIMIZER,
    TRANSFERS,
    UNEQUAL,
    Machine,
    layer_seconds,
    lost,
    step_seconds,
)
from testbed.planning.layouts.transformer import Transformer, model_names, read_model

MODEL = Transformer(layers=8, hidden=1024, heads=16, kv_heads=4, ffn=4096, vocabulary=32768)
MIXTURE = replace(MODEL, experts=8, experts_per_token=2)
MEMORY = FRAMEWORKS["nanotron"].memory
POWERS = st.sampled_from([1, 2, 4])
LAYOUTS = st.builds(
    Layout,
    *(POWERS for _ in ("dp", "tp", "pp", "cp")),
    st.just(1),
    st.integers(0, 3),
    st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "full"]),
    placement=st.sampled_from(PLACEMENTS),
)


def machine(framework, ranks=256, network="dgx-h100"):
    messages = Messages(load_network(network).topology(ranks))
    return Machine(Kernels(load_device("h100")), messages, FRAMEWORKS[framework])


NANOTRON, IDEAL = machine("nanotron"), machine("ideal")


@given(layout=LAYOUTS)
def test_groups_of_an_axis_have_its_size_and_axes_together_all_ranks(layout):
    for axis in ("dp", "tp", "pp", "cp"):
        assert len(layout.group(axis)) == getattr(layout, axis)
    assert sorted(layout.group("dp", "tp", "pp", "cp")) == list(range(layout.ranks))
    assert set(layout.group("cp")) | set(layout.group("dp")) <= set(layout.group("cp", "dp"))


@given(layout=LAYOUTS, framework=st.sampled_from([NANOTRON, IDEAL]))
def test_what_a_step_is_lost_to_is_the_step_and_nothing_is_less_than_nothing(layout, framework):
    training = Training(MODEL, layout, 4096, 64)

    found = lost(training, framework)

    assert sum(found.values()) == pytest.approx(step_seconds(training, framework))
    assert min(found.values()) >= 0
    assert found[COMPUTATION] > 0


@pytest.mark.parametrize("micro_batches", [1, 4, 16])
@pytest.mark.parametrize("pp", [2, 4])
def test_equal_stages_wait_as_the_closed_form_of_a_pipeline_says(pp, micro_batches):
    even = replace(MODEL, vocabulary=64)  # so that the ends take next to nothing
    training = Training(even, Layout(pp=pp, schedule="interleaved"), 4096, micro_batches)
    chunks, alone = 2, frozenset({TRANSFERS, UNEQUAL, DATA, OPTIMIZER})

    whole, full = (step_seconds(training, IDEAL, alone | more) for more in (frozenset(), {BUBBLE}))

    assert whole / full - 1 == pytest.approx((pp - 1) / (chunks * micro_batches))


@given(
    layout=LAYOUTS.filter(lambda own: own.pp > 1 and own.zero < 2 and own.recompute == "none"),
    framework=st.sampled_from([NANOTRON, IDEAL]),
    layers=st.integers(4, 12),
)
def test_zero_bubble_waits_less_than_1f1b_of_the_same_passes_and_holds_no_less(layout, framework, layers):
    model = replace(MODEL, layers=layers)
    one, split = (Training(model, replace(layout, schedule=own), 4096, 64) for own in ("1f1b", ZERO_BUBBLE))

    first, other = (step_seconds(own, framework, {DATA}) for own in (one, split))

    assert other < first
    if layout.zero:  # which reduces gradients behind all passes
        assert step_seconds(split, framework) < step_seconds(one, framework)
    assert 0 <= lost(split, framework)[BUBBLE] < lost(one, framework)[BUBBLE]
    assert fullest_bytes(split, MEMORY) >= fullest_bytes(one, MEMORY)


@given(
    layout=st.builds(
        Layout,
        *(st.just(8), POWERS, POWERS),
        ep=st.sampled_from([2, 4, 8]),
        zero=st.integers(0, 3),
        schedule=st.sampled_from(["1f1b", ZERO_BUBBLE]),
    ),
    width=st.sampled_from([1024, 4096]),
    framework=st.sampled_from([NANOTRON, IDEAL]),
    imbalances=st.lists(st.floats(1, 8), min_size=2, max_size=2).map(sorted),
)
def test_a_larger_imbalance_is_never_faster_and_never_holds_less(layout, width, framework, imbalances):
    model = replace(MIXTURE, hidden=width, ffn=4 * width)
    less, more = (
        Training(model, replace(layout, imbalance=str(Imbalance(own))), 4096, 32) for own in imbalances
    )

    assert step_seconds(less, framework) <= step_seconds(more, framework) * (1 + 1e-12)
    assert fullest_bytes(less, MEMORY) <= fullest_bytes(more, MEMORY)


@given(layout=LAYOUTS, layers=st.integers(4, 21))
def test_the_fullest_stage_is_the_fullest_of_all(layout, layers):
    training = Training(replace(MODEL, layers=layers), replace(layout, pp=4 * layout.pp), 4096, 64)

    every = [peak_bytes(training, MEMORY, position) for position in range(training.layout.pp)]

    assert fullest_bytes(training, MEMORY) == max(every)
    again, *divided = (
        fullest_bytes(replace(training, layout=replace(training.layout, **changes)), MEMORY)
        for changes in ({"recompute": "full"}, {"zero": 0}, {"zero": 1})
    )
    assert again <= max(every)
    assert divided[1] < divided[0] or layout.shards == 1


@pytest.mark.parametrize(("network", "slower"), [("dgx-h100", 1), ("aws-p3dn", 8)])
def test_groups_that_share_a_card_are_slower_by_as_many(network, slower):
    messages = Messages(load_network(network).topology(32))

    assert messages._shared(Layout(dp=4, tp=8).group("dp")) == pytest.approx(slower)


def test_experts_are_exchanged_and_shared_and_a_model_without_has_none():
    alone, shared = (lost(Training(MIXTURE, Layout(dp=8, ep=ep, zero=1), 4096, 64), IDEAL) for ep in (1, 8))

    assert alone["expert_parallel"] == 0 < shared["expert_parallel"]
    held = [Training(MIXTURE, Layout(dp=8, ep=ep), 4096, 64).held(0)[1] for ep in (1, 8)]
    assert [copies for _, copies in held] == [8, 1]
    assert held[0][0] == 8 * held[1][0]


@pytest.mark.parametrize("text", ["1.5", "power-law:1.2"])
def test_the_busier_a_rank_of_experts_the_longer_a_layer_and_the_more_it_holds(text):
    place = machine("nanotron", 8)

    def taken(ep, imbalance):
        training = Training(MIXTURE, Layout(dp=8, ep=ep, imbalance=imbalance), 4096, 8)
        return layer_seconds(training, place, frozenset())[0], fullest_bytes(training, MEMORY)

    assert str(Imbalance.parse(text)) == text
    assert taken(1, text) == taken(1, EVEN)
    assert all(more > even for more, even in zip(taken(8, text), taken(8, EVEN), strict=True))
    with pytest.raises(UsageError, match="--imbalance half: expected the busiest rank's tokens"):
        Imbalance.parse("half")


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt2-xl", 1.6), ("llama-8b", 8), ("llama-70b", 70.6), ("llama-405b", 405.8), ("mixtral-8x7b", 46.7)],
)
def test_models_that_ship_have_as_many_parameters_as_their_names_say(name, billions):
    _, model = read_model(f"{name}.toml")

    assert model.params / 1e9 == pytest.approx(billions, rel=0.03)
    assert read_model(name) == (name, model)
    assert name in model_names()


HEAD = "schema = 1\n[model]\nlayers = 2\n"
REST = "heads = 4\nffn = 8\nvocabulary = 8\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1", r"expected a table \[model\]"),
        (HEAD, "hidden"),
        (f"{HEAD}hidden = 30\n{REST}", "hidden = 30"),
        (f"{HEAD}hidden = 32\n{REST}experts = 4", "experts_per_token = 0: expected 1 to experts = 4"),
    ],
)
def test_a_file_that_is_no_model_says_what_is_wrong(text, said, tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(text)

    with pytest.raises(UsageError, match=said):
        read_model(file)
