"""Validation of a device: predictions stand in a file before anything is measured, and repeat."""

import hashlib
import json

import pytest
import torch

from sim import load_device
from testbed.calibration.judge import steps
from testbed.calibration.judge.models import MODELS, TrainedModel
from testbed.calibration.judge.steps import measured_step, middle, predicted_step


def begin():
    layer = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        layer(torch.ones(2, 8)).sum().backward()
        optimizer.step()

    return step


TINY = TrainedModel("tiny", "one layer", begin)


def test_predictions_are_written_down_before_anything_is_measured(tmp_path, monkeypatch):
    file = tmp_path / "predictions.json"
    monkeypatch.setattr(steps, "MODELS", {"tiny": TINY})
    monkeypatch.setattr(steps, "keep_memory", lambda: True)
    monkeypatch.setattr(
        steps, "measured_step", lambda *_: [json.loads(file.read_text())["tiny"]["seconds"]] * 3
    )

    found = steps.validate_device(load_device("laptop-cpu"), 1, file, lambda *_: None)

    assert found.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert found.rows[0].error == found.rows[0].spread == 0


def test_a_prediction_repeats_and_a_measurement_is_of_steps_after_the_first():
    device = load_device("laptop-cpu")

    assert predicted_step(TINY, device) == predicted_step(TINY, device)
    assert all(seconds > 0 for seconds in measured_step(TINY))
    assert middle([1.0, 2.0, 3.0])[0] == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_a_model_trains(model):
    step = model.begin()

    step()
    step()
