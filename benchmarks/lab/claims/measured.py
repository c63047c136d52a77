"""Claims that are measured: training in processes of this machine over Gloo."""

from __future__ import annotations

from statistics import mean, median, quantiles, stdev
from typing import Any

from benchmarks.lab.claims.claim import Case, Claim, Finding
from benchmarks.lab.claims.setups import DEVICES, MODELS_IN_WORDS, PLACES, PROFILES, Training, step
from testbed.errors import UsageError, how_to_install, is_installed
from testbed.output.table import percent, seconds
from testbed.scripts.launch import ask_ranks

TIMEOUT_SECONDS = 240.0
MINIMAL_LOSS = 0.01
LEAST_GAIN = 0.05
MOST_APART = 1e-12

HALF = Claim("C9", "FP16 gradients halve the bytes, with minimal effect on accuracy.")
VIEWS = Claim("C10", "Gradients as bucket views save copies: 5 to 10 % speed-up.")
WHOLE = Claim(
    "C14",
    "Averaging gradients over ranks gives the gradient of the whole batch: replicas stay identical.",
)


def run_trial(name: str, ranks: int) -> dict[str, Any]:
    """Return what the trial of that *name* found in so many processes over Gloo.

    Raises:
        LaunchError: a process failed, or the time was up.
    """
    from benchmarks.lab.claims.trials import trial

    return ask_ranks(trial, name, ranks, timeout=TIMEOUT_SECONDS, quiet=True)


def check_data() -> None:
    """Check, before any work is done, that there are digits to train on for claim C9.

    Raises:
        UsageError: there are none.
    """
    if not is_installed("sklearn"):
        raise UsageError(how_to_install("claim C9 needs scikit-learn", "demo"))


def half() -> Finding:
    """Train with gradients in 32 and in 16 bits, and count what travels."""
    found = run_trial("accuracy", 2)
    full, short = mean(found["float32"]), mean(found["float16"])
    spread = stdev(found["float32"])
    cases = [
        Case(
            {"what": "for accuracy"},
            f"{percent(full)} with 32 bits, {percent(short)} with 16; spread between seeds {percent(spread)}",
            full - short <= MINIMAL_LOSS,
            {"accuracy_float32": full, "accuracy_float16": short, "spread": spread},
        )
    ]
    for model in PROFILES:
        whole, halved = (Training(model, PLACES[0], half=wanted).profile().nbytes for wanted in (False, True))
        cases.append(
            Case(
                {"what": f"for bytes of {model}"},
                f"{whole / 1e6:,.0f} to {halved / 1e6:,.0f} MB",
                2 * halved == whole,
                {"bytes_float32": whole, "bytes_float16": halved},
            )
        )
    return Finding(
        HALF,
        "a convolutional network on 1,797 handwritten digits, 2 processes over Gloo, five seeds, with and "
        f"without torch's fp16_compress_hook; bytes of the gradients of {MODELS_IN_WORDS}",
        ("measured", "closed form"),
        "accuracy on held-out digits falls by at most 1 point in the mean over seeds; bytes are half",
        tuple(cases),
        _exposed_by_half(),
    )


def _exposed_by_half() -> str:
    """Return in how many set-ups computation waits less with 16 bits, and in which it waits longer."""
    longer, count = [], 0
    for place in PLACES:
        for model in PROFILES:
            whole, halved = (
                step(Training(model, place, half=wanted)).exposed_seconds for wanted in (False, True)
            )
            count += 1
            if halved > whole:
                longer.append(f"{model} on {place.name}, {seconds(whole)} to {seconds(halved)}")
    found = f"Simulated, computation waits less with 16 bits in {count - len(longer)} of {count} set-ups"
    if not longer:
        return found + "."
    return (
        f"{found} and longer in the others ({'; '.join(longer)}): a bucket holds twice the parameters, so "
        "the last one closes later."
    )


def views() -> Finding:
    """Time steps with and without views over Gloo, and count the copies on a GPU."""
    found = run_trial("views", 2)
    cases = []
    for key, pairs in found.items():
        model, wrapper = key.split()
        gains = sorted(without / with_view - 1 for without, with_view in pairs)
        low, _, high = quantiles(gains, n=4)
        gain = median(gains)
        cases.append(
            Case(
                {
                    "place": "on this CPU over Gloo",
                    "model": f"with {'wide layers and one sample' if model == 'wide' else 'convolutions'}",
                    "by": f"by {'torch' if wrapper == 'torch' else 'this project'}'s DDP",
                },
                f"{_faster(gain)}, quartiles {percent(low)} to {percent(high)}",
                gain >= LEAST_GAIN,
                {"gain": gain, "lower_quartile": low, "upper_quartile": high, "pairs": len(gains)},
            )
        )
    cases += [_copies_on_gpu(model, device) for model, device in DEVICES.items()]
    return Finding(
        VIEWS,
        "measured: 2 processes over Gloo on this machine, 8 linear layers of 1024 x 1024 with one sample, "
        "and 6 convolutions with 4 small images, pairs of steps in turns; closed form: a gradient is "
        "copied into its bucket and back, read and written, at the device's memory bandwidth; "
        f"{MODELS_IN_WORDS}",
        ("measured", "closed form"),
        "the step is at least 5 % faster with views (measured: the median of the pairs)",
        tuple(cases),
        "On a GPU the copies are taken to hide behind nothing, which is the most that views can save.",
    )


def _faster(gain: float) -> str:
    return f"{percent(abs(gain))} {'faster' if gain >= 0 else 'slower'}"


def _copies_on_gpu(model: str, name: str) -> Case:
    from sim.files.device_file import load_device

    device = load_device(name)
    training = Training(model, PLACES[0])
    profile, whole = training.profile(), step(training).seconds
    copied = 4 * profile.nbytes / device.memory_bandwidth
    gain = (whole + copied) / whole - 1
    return Case(
        {"place": f"on {name.upper()}", "model": f"with {model}", "by": "by any DDP"},
        f"at most {percent(gain)} faster, {seconds(copied)} of copies",
        gain >= LEAST_GAIN,
        {"gain": gain, "copy_seconds": copied},
    )


def whole_batch() -> Finding:
    """Train four replicas on parts of a batch, and one model on the whole of it."""
    found = run_trial("whole_batch", 4)
    cases = []
    for key, outcome in found.items():
        parts, norm, wrapper = key.split()
        cases.append(
            Case(
                {
                    "parts": f"with {parts} parts",
                    "model": "and batch norm" if norm == "norm" else "and no batch norm",
                    "by": f"by {'torch' if wrapper == 'torch' else 'this project'}'s DDP",
                },
                f"{outcome['differing']} parameters differ between replicas, {outcome['apart']:.1e} from "
                "the whole batch",
                outcome["differing"] == 0 and outcome["apart"] <= MOST_APART,
                {"differing": outcome["differing"], "apart": outcome["apart"]},
            )
        )
    identical = all(outcome["differing"] == 0 for outcome in found.values())
    return Finding(
        WHOLE,
        "4 processes over Gloo, a network of two linear layers in float64, 20 steps of SGD with momentum "
        "on 32 samples: 8 to each rank, or 20, 6, 4 and 2; with and without batch norm between the "
        "layers; beside one process with all 32",
        "measured",
        f"no parameter differs between replicas, and none by more than {MOST_APART:g} from those of the "
        "whole batch",
        tuple(cases),
        ("Replicas stay identical in every case. " if identical else "")
        + "A mean of means over unequal parts is not the mean, and batch norm normalizes each part alone.",
    )
