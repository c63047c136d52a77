"""Profiles survive a round trip, and say what is wrong with a file."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.derive_profiles import MODELS, derive
from ddp.errors import ProfileError
from ddp.profiles import Buffers, Gradient, Profile, bundled_profiles, load_profile

SECONDS = st.floats(0, 100, allow_nan=False)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    ready = draw(st.lists(SECONDS, min_size=1, max_size=20))
    gradients = tuple(
        Gradient(name=f"p{index}", numel=index, dtype="float32", nbytes=4 * index, ready_seconds=seconds)
        for index, seconds in enumerate(ready)
    )
    return Profile(
        name="random",
        source="test",
        device="none",
        forward_seconds=draw(SECONDS),
        backward_seconds=max(ready) + draw(SECONDS),
        gradients=gradients,
        buffers=Buffers.by_type(
            [("float32", 4 * draw(st.integers(0, 99))), ("int8", draw(st.integers(0, 99)))]
        ),
    )


def gradient(**changes) -> dict[str, Any]:
    return {"name": "a", "numel": 2, "dtype": "float32", "nbytes": 8, "ready_seconds": 1.0, **changes}


def as_dict(**changes) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "n",
        "source": "s",
        "device": "d",
        "forward_seconds": 1.0,
        "backward_seconds": 1.0,
        "gradients": [gradient()],
        **changes,
    }


@given(profiles())
def test_charges_meet_every_ready_time_in_ready_order_and_add_up_to_the_compute_of_a_step(profile):
    charges = profile.compute_charges()

    now = 0
    for index in profile.ready_order():
        now += charges[f"gradient:p{index}"]
        assert now == profile.gradients[index].ready_ps
    assert sum(charges.values()) == profile.compute_ps
    assert min(charges.values()) >= 0


def test_uniform_buckets_become_ready_at_equal_intervals_in_reverse_of_registration():
    profile = Profile.uniform(num_buckets=4, bucket_bytes=100, seconds_per_bucket=0.005)

    assert profile.ready_order() == [3, 2, 1, 0]
    assert [gradient.ready_ps for gradient in profile.gradients[::-1]] == [
        5 * 10**9 * n for n in (1, 2, 3, 4)
    ]
    assert profile.nbytes == 400
    assert profile.compute_seconds == 0.02


@pytest.mark.parametrize(
    ("num_buckets", "nbytes", "seconds", "said"),
    [
        *((*wrong, "expected at least one bucket") for wrong in [(0, 4, 1.0), (1, 3, 1.0), (1, 4, -1.0)]),
        (2, 2**50, 1.0, "2 equal buckets: numel: .* less than or equal to"),
    ],
)
def test_an_impossible_uniform_profile_is_refused(num_buckets, nbytes, seconds, said):
    with pytest.raises(ProfileError, match=said):
        Profile.uniform(num_buckets, nbytes, seconds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema: input should be 1, got 2"),
        ({"forward_seconds": -1.0}, "forward_seconds: .*greater than or equal to 0, got -1.0"),
        ({"forward_seconds": None}, "forward_seconds: .*valid number"),
        ({"forward_seconds": "0.1"}, "forward_seconds: .*valid number, got '0.1'"),
        ({"forward_seconds": 1e300}, r"forward_seconds: .*less than or equal to 86400, got 1e\+300"),
        ({"forwrd_seconds": 1}, "forwrd_seconds: unknown field .did you mean 'forward_seconds'"),
        ({"gradients": []}, "gradients: .*at least 1 item"),
        ({"gradients": [{"name": "a"}]}, "gradients 1, numel: this field is missing"),
        ({"gradients": 2 * as_dict()["gradients"]}, "gradients: a is listed more than once"),
        ({"gradients": [gradient(nbytes=7)]}, "gradients 1: nbytes: expected 8, .* got 7"),
        (
            {"gradients": [gradient(dtype="flat32")]},
            "gradients 1: unknown dtype 'flat32'; did you mean 'float32'.$",
        ),
        (
            {"gradients": [gradient(name=name, numel=2**40, nbytes=2**42) for name in "ab"]},
            f"gradients: expected at most {2**42} bytes in all, got {2**43}",
        ),
        ({"name": "a\033[31m"}, "name: expected text without control characters"),
        ({"backward_seconds": 0.5}, "gradients: a becomes ready after 1.0 s, later than .*, 0.5"),
    ],
)
def test_a_file_with_a_wrong_field_is_refused_by_file_and_field(tmp_path, changes, message):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(as_dict(**changes)))

    with pytest.raises(ProfileError, match=rf"wrong\.json: expected a profile: (.*; )?{message}"):
        Profile.load(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expecting property name"), ("[" * 100_000, "nested too deeply"),
        ('{"schema": 1, "schema": 1}', "the key 'schema' stands twice"),
        ('{"forward_seconds": NaN}', "expected finite numbers, got NaN"), ("\xff", "can't decode byte"),
        ("9" * 5000, "Exceeds the limit"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_json_is_refused(tmp_path, text, problem):
    path = tmp_path / "wrong.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ProfileError, match=rf"wrong\.json: not a JSON file: .*{problem}"):
        Profile.load(path)


@pytest.mark.parametrize(
    ("name", "num_tensors", "num_elements", "dtype"),
    [
        ("resnet50", 161, 25_557_032, "float32"), ("ssd300-resnet50", 183, 22_894_902, "float32"),
        ("bert-base", 206, 110_111_042, "float32"), ("bert-large", 391, 335_141_888, "float32"),
        ("transformer-big", 185, 210_808_832, "float32"),
        ("transformer-xl-base", 182, 191_950_298, "float32"),
        ("transformer-xl-large", 215, 285_167_482, "float32"), ("mpt-125m", 13, 125_311_488, "float32"),
        ("mpt-350m", 25, 355_985_408, "float32"), ("mpt-1b", 25, 1_315_950_592, "float32"),
        ("mpt-3b", 33, 2_651_837_440, "float32"), ("mpt-7b", 33, 6_658_859_008, "float32"),
        ("mpt-13b", 41, 12_853_954_560, "float32"), ("gpt2-xl", 580, 1_557_611_200, "float32"),
        ("llama3-8b", 291, 8_030_261_248, "bfloat16"),
    ],
)  # fmt: skip
def test_a_bundled_profile_has_the_parameters_of_its_reference_model(name, num_tensors, num_elements, dtype):
    profile = load_profile(name)

    assert len(profile.gradients) == num_tensors
    assert sum(gradient.numel for gradient in profile.gradients) == num_elements
    assert {gradient.dtype for gradient in profile.gradients} == {dtype}
    assert {gradient.nbytes // gradient.numel for gradient in profile.gradients} == {
        2 if dtype == "bfloat16" else 4
    }


def test_the_bundled_profiles_are_what_their_script_derives():
    assert sorted(MODELS) == sorted(bundled_profiles())
    for name, model in MODELS.items():
        assert load_profile(name) == derive(model)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_gradients_of_a_bundled_profile_are_ready_from_the_last_layer_to_the_first(name):
    profile, model = load_profile(name), MODELS[name]

    ready = {gradient.name: gradient.ready_ps for gradient in profile.gradients}
    in_order = [ready[tensor] for layer in model.layers for tensor, _ in layer.tensors]

    assert in_order == sorted(in_order, reverse=True)
    assert in_order[0] == profile.backward_ps


@pytest.mark.parametrize(
    ("name", "embedding"),
    [
        ("gpt2-xl", "transformer.wte.weight"), ("bert-base", "bert.embeddings.word_embeddings.weight"),
        ("transformer-big", "encoder.embed_tokens.weight"), ("mpt-7b", "transformer"),
    ],
)  # fmt: skip
def test_a_tied_head_makes_the_gradient_of_the_embedding_ready_last(name, embedding):
    profile = load_profile(name)

    assert profile.gradients[profile.ready_order()[-1]].name == embedding


def test_the_buffers_of_a_model_are_those_of_its_batch_norms():
    """Of each a mean, a variance and a number; a batch norm has a bias, torchvision's convolutions none."""
    profile = load_profile("resnet50")

    biases = [own for own in profile.gradients if own.name.endswith(".bias") and own.name != "fc.bias"]
    expected = [("float32", sum(2 * own.nbytes for own in biases)), ("int64", 8 * len(biases))]

    assert len(biases) == 53
    assert [(own.dtype, own.nbytes) for own in profile.buffers] == expected
    assert profile.broadcasts() == [nbytes for _, nbytes in expected]


@given(st.lists(st.tuples(st.sampled_from(["float32", "int64"]), st.integers(0, 2**27).map(lambda n: 8 * n))))
def test_buffers_of_a_type_travel_together_in_messages_of_250_mib(buffers):
    own = Buffers.by_type(buffers)
    profile = Profile.uniform(1, 4, 1.0).model_copy(update={"buffers": own})

    sent = profile.broadcasts()

    assert sum(sent) == sum(nbytes for _, nbytes in buffers)
    assert all(0 < nbytes <= 250 * 2**20 for nbytes in sent)
    assert sum(nbytes < 250 * 2**20 for nbytes in sent) <= len({dtype for dtype, _ in buffers})
