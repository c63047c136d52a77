"""Goodput: the closed form and the events agree, every second is accounted for, published runs come out."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

import testbed
from testbed.errors import UsageError
from testbed.planning.goodput.losses import Run, best_interval, expected
from testbed.planning.goodput.policy import (
    RESTARTS,
    STORAGE_PER_NODE,
    Checkpoint,
    Degraded,
    Part,
    Setting,
    failures_per_second,
    parts_of,
)
from testbed.planning.goodput.study import at_best_interval

HOUR = 3600.0

SETTINGS = st.builds(
    Setting,
    parts=st.floats(0.5, 20).map(lambda hours: (Part("node", 16, 16 * hours, "drawn"),)),
    num_nodes=st.just(16),
    checkpoint=st.builds(Checkpoint, st.just(0.0), *[st.floats(0, 300)] * 3),
    interval_seconds=st.floats(400, 7200),
    recovery=st.sampled_from(["restart", "spares", "in-process"]),
    restart_seconds=st.floats(0, 900),
    detection_seconds=st.floats(0, 600),
)
ANY = st.builds(
    lambda setting, recovery, spares, degraded: Setting(
        **{**vars(setting), "recovery": recovery, "spares": spares, "degraded": degraded}
    ),
    SETTINGS,
    st.sampled_from(sorted(RESTARTS)),
    st.none() | st.integers(0, 8),
    st.none() | st.builds(Degraded, st.floats(10, 1000), st.floats(60, 7200), st.floats(1.1, 3)),
)


@given(setting=SETTINGS, seed=st.integers(0, 2**32))
def test_the_closed_form_is_the_mean_of_what_happens(setting, seed):
    found = expected(setting)
    failures = 4_000
    run = Run(setting, failures / setting.rate, seed)
    spread = 8 / math.sqrt(failures)  # eight standard deviations of a count of failures

    assert run.goodput == pytest.approx(found.goodput, abs=spread)
    assert sum(run.interruptions.values()) == pytest.approx(failures, rel=spread)
    for cause, part in found.lost.items():
        assert run.spent.get(cause, 0.0) / run.seconds == pytest.approx(part, abs=spread)
    assert found.goodput + math.fsum(found.lost.values()) == pytest.approx(1)


@given(setting=ANY, seed=st.integers(0, 2**32), days=st.floats(0.1, 30))
def test_every_second_is_spent_once(setting, seed, days):
    run = Run(setting, days * 24 * HOUR, seed)

    assert math.fsum(run.spent.values()) == pytest.approx(run.seconds)
    assert all(spent >= -1e-6 for spent in run.spent.values())
    assert Run(setting, days * 24 * HOUR, seed).spent == run.spent


@given(setting=SETTINGS, factor=st.floats(0.2, 5))
def test_no_interval_is_better_than_the_best(setting, factor):
    best = at_best_interval(setting)
    other = setting.at(max(60.0, setting.checkpoint.write_seconds, factor * best.interval_seconds))

    assert expected(best).goodput >= expected(other).goodput - 1e-9


def test_with_instant_writes_and_rare_failures_the_best_interval_is_young_s():
    setting = Setting((Part("node", 1, 1000.0, "given"),), 1, Checkpoint(0.0, 30.0, 0.0, 0.0), HOUR)

    assert best_interval(setting) == pytest.approx(math.sqrt(2 * 30.0 * 1000 * HOUR), rel=0.02)


def test_training_that_never_fails_loses_its_checkpoints_alone():
    setting = Setting((Part("node", 1, math.inf, "given"),), 1, Checkpoint(0.0, 10.0, 0.0, 0.0), 90.0)

    assert expected(setting).goodput == pytest.approx(0.9)
    assert Run(setting, 1e6, 0).goodput == pytest.approx(0.9, rel=1e-4)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_llama_3_trained_above_nine_tenths_of_the_time(kind):
    """Published: 419 unexpected interruptions in 54 days, and an effective training time above 90 %."""
    parts = parts_of(16_384, 8, {})
    whole = Checkpoint.of(405e9 * 14, kind, num_ranks=16_384, storage_bandwidth=2048 * STORAGE_PER_NODE)
    setting = at_best_interval(Setting(parts, 2048, whole, HOUR))

    assert failures_per_second(parts) * 54 * 24 * HOUR == pytest.approx(419)
    assert expected(setting).goodput > 0.9
    month = [Run(setting, 54 * 24 * HOUR, seed).goodput for seed in range(5)]
    assert statistics.fmean(month) == pytest.approx(expected(setting).goodput, abs=0.01)


def test_nodes_that_stand_by_end_the_waiting():
    parts, checkpoint = (Part("node", 64, 640.0, "given"),), Checkpoint(0.0, 1.0, 0.0, 1.0)

    runs = (Run(Setting(parts, 64, checkpoint, HOUR, spares=own), 1e7, 0) for own in (0, 2, 4, 16))

    waiting = [run.spent.get("waiting for nodes", 0.0) for run in runs]
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] > waiting[-1] == 0


SCRIPT = """\
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
model = DistributedDataParallel(torch.nn.Linear(int(sys.argv[2]), 256).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(64, 256).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_script_brings_its_step_and_its_state(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    result = testbed.plan(
        script, ["--width", "256"], goodput=True, network=["dgx-h100"], ranks="16", mtbf=["cluster=2h"]
    )
    found = result.document()

    assert found["interruptions"] == pytest.approx(30 * 24 / 2)
    assert found["checkpoint_bytes"] == 12 * (256 * 256 + 256) + 2 * 4  # and a count for each parameter
    assert found["seconds"] * (1 - found["goodput"]) == pytest.approx(sum(found["seconds_lost"].values()))
    assert found["low"] <= found["goodput"] <= found["high"]
    assert {row["recovery"] for row in found["policies"]} == {*RESTARTS}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network": None}, "one network"),
        ({"ranks": "8,16"}, "one number of ranks"),
        ({"profile": ["resnet50"]}, "--profile and --goodput"),
        ({"mtbf": ["gpu"]}, "expected PART=TIME"),
        ({"mtbf": ["cpu=3h"]}, "no part 'cpu'; expected one of gpu"),
        ({"mtbf": ["gpu=3"]}, "its unit"),
        ({"degraded": "3h:1h:0.5"}, "factor above 1"),
        ({"question": "question.toml"}, "expected the script"),
    ],
)
def test_what_has_no_goodput_is_refused_by_name(tmp_path, options, said):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    asked = {"question": script, "arguments": ["--width", "256"], "network": ["dgx-h100"], "ranks": "8"}

    with pytest.raises(UsageError, match=said):
        testbed.plan(**{**asked, **options}, goodput=True)
