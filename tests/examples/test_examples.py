"""Each example trains as one process would: in virtual time, and under torchrun on two backends."""

import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from collectives.virtual import Roofline, run
from sim import load_device

ROOT = Path(__file__).resolve().parents[2]
TOLERANCES = {
    "accumulation": 1e-5,
    "checkpointing": 1e-5,
    "data_parallel": 1e-5,
    "fp16_hook": 1e-4,  # gradients of 11 bits
    "fsdp2": 2e-3,  # activations of 8 bits
    "model_parallel": 1e-5,
    "pipeline": 1e-5,
    "tensor_parallel": 1e-5,
    "zero1": 1e-5,
    "zero2": 1e-5,
    "zero3": 1e-5,
}
EXPERTS = "--model debug --backend gloo"
LAYOUTS = [
    *(("llama", "--fsdp 2 --ac", 0.3), ("moe", f"{EXPERTS} --ep 4", 0.2)),
    *(
        pytest.param("llama", layout, 0.3, marks=pytest.mark.slow)
        for layout in ("", "--tp 2 --batch 2", "--pp 2 --tp 2 --batch 4", "--pp 4 --schedule gpipe")
    ),
    *(
        pytest.param("moe", f"{EXPERTS} {layout}", 0.2, marks=pytest.mark.slow)
        for layout in ("--ep 2 --ac", "--ep 2 --tp 2 --batch 2", "--pp 2 --ep 2 --batch 4")
    ),
]
SCHEDULES = ["zbvzerobubble", "dualpipev", "interleaved1f1b", "interleavedzerobubble"]
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does


def losses_in(printed):
    steps = re.findall(r"^step (\d+): loss ([\d.]+)(?:,.*)?$", printed, re.MULTILINE)
    assert [int(step) for step, _ in steps] == list(range(max(3, len(steps)))), printed
    return [float(loss) for _, loss in steps]


def path_of(name):
    return str(ROOT / "examples" / f"{name}.py")


@pytest.fixture
def trained(capfd, monkeypatch, tmp_path):
    """Return the losses that an example prints on so many ranks in virtual time, and the run's report."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def losses(name, num_ranks, *argv, **options):
        run_of_example = run(path_of(name), num_ranks, "dgx-h100", argv=argv, **options)
        return losses_in(capfd.readouterr().out), run_of_example.report

    return losses


@pytest.fixture
def deep_moe(tmp_path):
    """Return the path of moe.py with as many layers as a pipeline of two ranks has stages."""
    script = tmp_path / "deep_moe.py"
    two, four = (f'"debug": (64, {layers}, 4, 2,' for layers in (2, 4))
    assert two in Path(path_of("moe")).read_text()
    script.write_text(Path(path_of("moe")).read_text().replace(two, four))
    return str(script)


def mirrored(script):
    """Return the path of *script* with the first stage's parameters on the last one, and so on."""
    line, mirror = "    chunk.initialize()\n", "    chunk.stage = num_stages - 1 - chunk.stage\n"
    text = Path(script).read_text()
    assert line in text
    other = Path(script).with_name("mirrored.py")
    other.write_text(text.replace(line, mirror + line + mirror))
    return str(other)


def test_no_example_hides_a_module_from_those_beside_it():
    names = {path.stem for path in (ROOT / "examples").rglob("*.py")}

    assert not names & {"collectives", "ddp", "sim", "testbed", "torch", *sys.stdlib_module_names}


@pytest.mark.parametrize("name", ["llama", "moe"])
def test_a_pipeline_with_too_few_layers_says_so(trained, name):
    argv = ["--model", "debug", "--pp", "4", "--schedule", "interleaved1f1b", "--backend", "gloo"]
    argv += ["--ep", "1"] if name == "moe" else []

    with pytest.raises(Exception, match=r"--pp 4 --schedule interleaved1f1b: rank \d has none of \d layers"):
        trained(name, 4, *argv)


@pytest.mark.costly
@pytest.mark.parametrize("name", TOLERANCES)
def test_four_ranks_learn_what_one_does_from_the_same_batches(trained, name):
    alone, _ = trained(name, 1)
    together, report = trained(name, 4, compute=Roofline("h100"))

    assert together == pytest.approx(alone, rel=TOLERANCES[name])
    assert together[-1] < together[0]
    assert len(report.iterations) >= 6  # restoring an optimizer makes a step, too
    assert report.notices == ()


@pytest.mark.costly
@pytest.mark.parametrize("name", TOLERANCES)
def test_tensors_of_the_cpu_keep_values_and_times_where_devices_have_none(trained, name):
    (losses, report), (losses_beside, report_beside) = (
        trained(name, 4, compute=Roofline("h100"), fake=fake, fold=False) for fake in (False, True)
    )

    assert losses_beside == losses
    assert (
        report_beside.iterations[-1] == report.iterations[-1]
    )  # checkpoints take another way beside devices


@pytest.mark.costly
def test_training_goes_on_from_the_checkpoint_of_rank_0(trained, tmp_path):
    checkpoint = str(tmp_path / "model.pt")

    before, _ = trained("data_parallel", 2, "--checkpoint", checkpoint)
    after, _ = trained("data_parallel", 2, "--checkpoint", checkpoint)

    assert after[0] < before[-1]


@pytest.mark.costly
def test_more_micro_batches_leave_a_smaller_bubble(trained):
    device = replace(load_device("h100"), kind="cpu")  # stages of equal length, which no host holds up
    waiting = []
    for micro_batches in (2, 4):
        sizes = ("--width", "64", "--batch", "256", "--micro-batches", str(micro_batches))
        _, report = trained("pipeline", 2, *sizes, compute=Roofline(device))
        steady = report.steady()
        waiting.append(steady.exposed_seconds / steady.seconds)

    assert waiting[1] < waiting[0] == pytest.approx(1 / 3, abs=0.02)  # of 2 micro-batches and 1 more stage


@pytest.mark.costly
@pytest.mark.parametrize(("name", "layout", "least"), LAYOUTS)
def test_a_large_model_learns_however_it_is_shared_among_its_ranks(trained, name, layout, least):
    losses, report = trained(name, 4, "--lr", "3e-3", "--steps", "6", *layout.split())

    assert losses[0] == pytest.approx(math.log(256), rel=0.02)  # it knows nothing of 256 tokens
    assert losses[-1] < losses[0] - least
    assert len(report.iterations) == 6


@pytest.mark.costly
@pytest.mark.parametrize(
    "schedule", [SCHEDULES[0], *(pytest.param(own, marks=pytest.mark.slow) for own in SCHEDULES[1:])]
)
def test_a_model_learns_the_same_whatever_the_schedule_of_its_pipeline(deep_moe, capfd, schedule):
    arguments = ("--model", "debug", "--ep", "2", "--batch", "4", "--lr", "3e-3", "--backend", "gloo")

    run(deep_moe, 8, "dgx-h100", argv=(*arguments, "--pp", "4"))
    plain = losses_in(capfd.readouterr().out)
    scheduled, with_others_stages = list[float](), list[float]()
    for script, losses in ((deep_moe, scheduled), (mirrored(deep_moe), with_others_stages)):
        run(script, 4, "dgx-h100", argv=(*arguments, "--pp", "2", "--schedule", schedule))
        losses += losses_in(capfd.readouterr().out)

    assert scheduled == pytest.approx(plain, rel=1e-6)
    assert with_others_stages != pytest.approx(plain, rel=1e-4)
    assert scheduled[-1] < scheduled[0] - 0.1


@pytest.mark.costly
@pytest.mark.parametrize(
    ("routing", "layout"),
    [
        ("balanced", ""),
        ("power-law:1.2", ""),
        *(
            pytest.param("power-law:1.2", f"--pp 2 --batch 4 --schedule {own}", marks=pytest.mark.slow)
            for own in SCHEDULES
        ),
    ],
)
def test_ranks_with_experts_take_the_same_time_folded_or_not(deep_moe, routing, layout):
    options = {"compute": Roofline("h100"), "fake": True, "routing": routing}
    arguments = ("--model", "debug", "--ep", "2", "--steps", "3", "--seq-len", "16", *layout.split())
    script = deep_moe if layout else path_of("moe")

    folded, unfolded = (
        run(script, 8, "dgx-h100", argv=arguments, fold=fold, **options) for fold in (True, False)
    )

    assert folded.times_ps == unfolded.times_ps
    assert folded.report.iterations == unfolded.report.iterations
    assert folded.report.lost == unfolded.report.lost
    assert folded.report.memory == unfolded.report.memory
    assert folded.report.folded
    assert not unfolded.report.folded


@pytest.mark.costly
def test_mpt_begins_at_the_loss_of_one_who_knows_nothing(capfd):
    sizes = ("--vocabulary", "256", "--seq-len", "32", "--accumulate", "2", "--checkpoint", "--no-sync")

    run(path_of("mpt"), 2, "dgx-h100", argv=sizes)

    found = re.findall(r"loss ([\d.]+)", capfd.readouterr().out)
    assert [float(loss) for loss in found] == pytest.approx([math.log(256)] * 3, rel=0.02)


def free_ports(count):
    """Return ports that no connection gets by itself, so that they stay free until they are bound."""
    found = []
    for port in random.sample(range(20_000, 32_000), 20 * count):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found[:count]


@pytest.mark.distributed
@pytest.mark.slow
def test_two_processes_learn_the_same_over_gloo_and_over_our_backend(trained, tmp_path):
    large = {"llama": 2e-3, "llama --pp 2 --schedule zbvzerobubble --batch 4": 2e-3}  # activations of 8 bits
    tolerances = {**TOLERANCES, **large, "moe --model debug --ep 2": 1e-6}  # digits of a float
    runs = [(name, backend) for backend in ("gloo", "testbed") for name in tolerances]
    jobs = [
        [port, path_of(name.split()[0]), "--backend", backend, *name.split()[1:]]
        for port, (name, backend) in zip(free_ports(len(runs)), runs, strict=True)
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, str(Path(__file__).with_name("every_example.py"))]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PRINTED": str(tmp_path / "printed.json"),
        "TMPDIR": str(tmp_path),
    }

    ended = subprocess.run(
        [*command, str(tmp_path / "jobs.json")], env=environment, capture_output=True, text=True, timeout=110
    )

    assert ended.returncode == 0, ended.stderr
    printed = dict(zip(runs, json.loads((tmp_path / "printed.json").read_text()), strict=True))
    for name, tolerance in tolerances.items():
        example, *arguments = name.split()
        own = ("--backend", "gloo") if example in ("llama", "moe") else ()  # drawn in parts, as devices do
        virtual, _ = trained(example, 2, *own, *arguments)
        for backend in ("gloo", "testbed"):
            assert losses_in(printed[name, backend]) == pytest.approx(virtual, rel=tolerance), (name, backend)
