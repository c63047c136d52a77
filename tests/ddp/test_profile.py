"""Profiles survive a round trip, and say what is wrong with a file."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp.errors import ProfileError
from ddp.profile import Gradient, Profile, bundled_profiles, load_profile

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
    )


def as_dict(**changes: Any) -> dict[str, Any]:
    gradient = {"name": "a", "numel": 2, "dtype": "float32", "nbytes": 8, "ready_seconds": 1.0}
    return {
        "schema": 1,
        "name": "n",
        "source": "s",
        "device": "d",
        "forward_seconds": 1.0,
        "backward_seconds": 1.0,
        "gradients": [gradient],
        **changes,
    }


@given(profiles())
def test_a_saved_profile_is_loaded_unchanged(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile
) -> None:
    path = tmp_path_factory.mktemp("profile") / "p.json"
    profile.save(path)

    assert Profile.load(path) == profile


@given(profiles())
def test_the_charges_of_a_step_add_up_to_its_compute(profile: Profile) -> None:
    charges = profile.compute_charges()

    assert sum(charges.values()) == profile.compute_ps
    assert min(charges.values()) >= 0


@given(profiles())
def test_charging_in_ready_order_meets_every_ready_time(profile: Profile) -> None:
    charges = profile.compute_charges()

    now = 0
    for index in profile.ready_order():
        now += charges[f"gradient:p{index}"]
        assert now == profile.gradients[index].ready_ps


def test_uniform_buckets_become_ready_at_equal_intervals_in_reverse_of_registration() -> None:
    profile = Profile.uniform(num_buckets=4, bucket_bytes=100, seconds_per_bucket=0.005)

    assert profile.ready_order() == [3, 2, 1, 0]
    assert [profile.gradients[index].ready_ps for index in profile.ready_order()] == [
        5 * 10**9,
        10 * 10**9,
        15 * 10**9,
        20 * 10**9,
    ]
    assert profile.nbytes == 400
    assert profile.compute_seconds == 0.02


@pytest.mark.parametrize(("num_buckets", "nbytes", "seconds"), [(0, 4, 1.0), (1, 3, 1.0), (1, 4, -1.0)])
def test_an_impossible_uniform_profile_is_refused(num_buckets: int, nbytes: int, seconds: float) -> None:
    with pytest.raises(ProfileError, match="expected at least one bucket"):
        Profile.uniform(num_buckets, nbytes, seconds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema: Input should be 1, got 2"),
        ({"forward_seconds": -1.0}, "forward_seconds: .*greater than or equal to 0, got -1.0"),
        ({"forward_seconds": None}, "forward_seconds: .*valid number"),
        ({"forwrd_seconds": 1}, "forwrd_seconds: Extra inputs are not permitted"),
        ({"gradients": []}, "gradients: .*at least 1 item"),
        ({"gradients": [{"name": "a"}]}, "gradients.0.numel: Field required"),
        ({"gradients": 2 * as_dict()["gradients"]}, "gradients: a is listed more than once"),
        ({"backward_seconds": 0.5}, "gradients: a becomes ready after 1.0 s, later than .*, 0.5"),
    ],
)
def test_a_file_with_a_wrong_field_is_refused_by_file_and_field(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(as_dict(**changes)))

    with pytest.raises(ProfileError, match=rf"wrong\.json: {message}"):
        Profile.load(path)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text("{")

    with pytest.raises(ProfileError, match=r"wrong\.json: Invalid JSON"):
        Profile.load(path)


def test_an_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ProfileError, match="no profile 'resnet_50': did you mean 'resnet50'"):
        load_profile("resnet_50")


def test_resnet50_has_its_161_parameter_tensors() -> None:
    profile = load_profile("resnet50")

    assert "resnet50" in bundled_profiles()
    assert len(profile.gradients) == 161
    assert sum(gradient.numel for gradient in profile.gradients) == 25_557_032
    assert profile.ready_order()[0] == 160


def test_the_bundled_resnet50_is_what_its_script_derives() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "derive_resnet50_profile.py"

    assert load_profile("resnet50") == runpy.run_path(str(script))["derive"]()
