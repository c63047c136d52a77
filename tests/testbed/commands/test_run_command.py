"""`testbed run`: a script runs unmodified as ranks in virtual time, and its failures are its own."""

import io
import signal
import subprocess
import sys
import textwrap

import pytest

from sim.topology.description import load_network
from testbed.report.virtual import WORTH_COMPARING
from testbed.scripts import rank_output
from testbed.scripts.rank_output import PrefixedLines
from testbed.scripts.script import run_script
from tests.commands import called, in_one_line, reported
from tests.processes import not_outliving
from tests.waiting import LAST_RESORT

TRAIN = """
    import argparse
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ranks", default="the script's own")
    arguments = parser.parse_args()
    dist.init_process_group("nccl")
    model = DistributedDataParallel(torch.nn.Linear(100, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(arguments.steps):
        model(torch.ones(1, 100)).sum().backward()
        optimizer.step()
        print(f"rank {dist.get_rank()} of {dist.get_world_size()}, step {step}, {arguments.ranks}")
    dist.destroy_process_group()
"""
SUM = "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(10))"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return path


def run(script, body, *options, code=0):
    script.write_text(textwrap.dedent(body))
    return called("run --ranks 4", *options, script, code=code)


def test_a_script_gets_its_own_flags_and_rank_0_is_heard(script):
    result = called(f"run --ranks 4 {script} --steps 2 --ranks mine")

    assert result.stdout.splitlines() == [f"rank 0 of 4, step {step}, mine" for step in range(2)]
    assert "4 ranks on switch-100g, in virtual time" in result.stderr
    assert "iteration   " in result.stderr
    assert "not charged, so time is that of communication alone: --compute h100" in result.stderr
    assert "exposed" not in result.stderr
    assert "computation: none but what the script charges; collectives: auto" in result.stderr
    assert "rank 0 up" in result.stderr


def test_the_transport_is_what_would_run_unless_another_is_named(script):
    script.write_text(SUM)
    counted = "--arrival-overhead 20us --reduction-bandwidth 2GB/s"
    over_gloo, plain, ideal, nccl = (
        reported(f"run --ranks 4 {options} {script}")
        for options in (counted, "", "--transport-model ideal", "--network dgx-h100")
    )

    assert over_gloo["transport_model"] == "gloo"
    assert over_gloo["arrival_overhead_seconds"] == 20e-6
    assert "transport model gloo; what arrives is known after 20 us; ranks reduce at" in over_gloo["model"]
    assert over_gloo["seconds"] > plain["seconds"]
    assert (ideal["transport_model"], nccl["transport_model"]) == ("ideal", "nccl")


@pytest.mark.parametrize(
    ("heard", "lines"),
    [
        ("3", ["a", "b3"]),
        ("all", [line for rank in range(4) for line in (f"[rank {rank}] a", f"[rank {rank}] b{rank}")]),
    ],
)
def test_ranks_are_heard_as_is_asked_and_all_with_a_prefix(heard, lines, script):
    body = "import os\nprint('a\\nb', end='')\nprint(os.environ['RANK'], end='')"

    result = run(script, body, "--output", heard)

    assert sorted(result.stdout.splitlines()) == sorted(lines)


def test_a_line_without_end_does_not_grow_for_ever():
    target = io.StringIO()
    lines = PrefixedLines(target, "[rank 0] ")

    for _ in range(100):
        lines.write("x" * 1000)

    assert len(target.getvalue()) > 60_000


def test_the_json_report_is_all_of_stdout(script):
    report = reported(f"run --ranks 4 --algorithm all_reduce=tree,broadcast=chain {script}")

    assert report["num_ranks"] == 4
    assert report["algorithm"] == "all_reduce by tree, broadcast by chain"
    assert len(report["iterations"]) == 3
    assert report["steady_iteration"]["seconds"] == report["iterations"][2]["seconds"]
    assert {link["name"] for link in report["links"]} >= {"rank 0 up", "rank 3 down"}
    assert report["compute"] == "none but what the script charges"


def test_computation_is_charged_by_the_model_that_is_named(script):
    report = reported(f"run --ranks 4 --compute h100 {script}")

    assert report["compute"] == "roofline of h100"
    assert report["transport_model"] == "nccl"
    assert report["steady_iteration"]["compute_seconds"] > 0


def test_an_error_shows_the_traceback_of_its_rank_from_the_script_on(script):
    body = """
        import torch.distributed as dist
        dist.init_process_group()

        def part():
            raise ValueError("bad label")

        if dist.get_rank() == 3:
            part()
        dist.barrier()
    """

    result = run(script, body, code=1)

    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{script}", line 9' in lines[1]
    others = lines.index("ValueError: bad label") + 1
    assert [line.split(":")[0] for line in lines[others : others + 3]] == ["  rank 0", "  rank 1", "  rank 2"]
    assert lines[-1] == f"testbed: error: {script}, rank 3: ValueError: bad label"
    assert result.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("sys.exit()", 0, "time        0 until the last rank had finished"),
        ("sys.exit(3)", 1, "rank 0: ended with exit code 3\n"),
        ("import os\nos.environ['RANK'] == '1' and sys.exit(3)", 1, "code 3; what it printed: --output 1\n"),
        ("sys.exit('no data')", 1, "rank 0: ended with: no data"),
        ("x = (", 1, "'(' was never closed … cannot be read as Python"),
    ],
)
def test_how_a_script_exits_is_respected(script, ending, code, said):
    result = run(script, f"import sys\n{ending}", code=code)

    assert all(part in result.stderr for part in said.split(" … "))
    assert "Traceback" not in result.stderr


def test_an_algorithm_of_ones_own_was_proved_for_the_groups_of_the_script_too(script):
    script.write_text(SUM.replace("ones(10)", "ones(8), group=dist.new_subgroups(2)[0]"))

    report = reported(f"run --ranks 4 --algorithm examples/my_ring.py:my_ring {script}")

    assert [own["proved_for"] for own in report["proved"]] == [[4], [2]]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("algorithm", "is_said"), [("naive", True), ("auto", False), ("nccl", False)])
def test_a_program_that_is_faster_is_named_unless_a_model_of_nccl_carries(script, algorithm, is_said):
    body = SUM.replace("torch.ones(10)", f"torch.zeros({WORTH_COMPARING}, dtype=torch.uint8)")

    said = run(script, body, "--network", "dgx-a100", "--algorithm", algorithm).stderr

    assert ("Faster: " in said) == is_said


def test_on_a_terminal_a_line_says_how_far_the_run_is_and_gives_way_to_the_script(script, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(rank_output, "_SHOWN_EVERY", 0.0)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    topology = load_network("switch-100g").topology(2)

    run_script(
        str(script), [], topology,
        module=False, compute="none", algorithm="ring", heard="all", as_json=False,
    )  # fmt: skip

    text = terminal.getvalue()
    assert "2 ranks on switch-100g: 0 of virtual time" in text
    assert "of virtual time, iteration 2" in text
    shown = [line.rpartition("\x1b[2K")[2] for line in text.split("\n")]
    steps = (f"rank {rank} of 2, step {step}" for rank in (0, 1) for step in range(3))
    assert sorted(shown) == ["", *(f"[{step[:6]}] {step}, the script's own" for step in steps)]


def test_a_rank_whose_output_is_hidden_is_heard_from_where_it_enters_the_debugger(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nrank = int(os.environ['RANK'])\nif rank == 1:\n    breakpoint()\n    rank = 7\n"
    )
    command = [sys.executable, "-m", "testbed", "run", "--ranks", "2", str(script)]

    run = subprocess.run(command, input="p rank + 16\nc\n", capture_output=True, text=True, check=True)

    assert "-> rank = 7\n(Pdb, rank 1) 17\n(Pdb, rank 1) " in run.stdout


def start(script, body, *options):
    script.write_text(textwrap.dedent(body))
    command = [sys.executable, "-m", "testbed", "run", *options, str(script)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


ON_AND_ON = "while True: print('on and on', flush=True)"


def begin(script, what):
    """Start two ranks, the first of which does *what* by now."""
    body = f"import os, time\nif os.environ['RANK'] == '0':\n    print('begun', flush=True)\n    {what}\n"
    process = start(script, body, "--ranks", "2")
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.costly
@pytest.mark.parametrize("what", [ON_AND_ON, pytest.param("time.sleep(3600)", marks=pytest.mark.slow)])
def test_ctrl_c_ends_everything_at_once(script, what):
    with not_outliving(begin(script, what)) as process:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LAST_RESORT)

    assert process.returncode == 130
    assert "testbed: interrupted" in stderr
    assert "Traceback" not in stderr


@pytest.mark.costly
@pytest.mark.usefixtures("ignores_interrupts")
def test_a_job_in_the_background_ignores_ctrl_c_and_ends_by_sigterm(script):
    with not_outliving(begin(script, ON_AND_ON)) as process:
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(1000)] == ["on and on\n"] * 1000

        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LAST_RESORT)

    assert process.returncode == -signal.SIGTERM


@pytest.mark.costly
def test_a_reader_that_has_enough_ends_the_run(script):
    process = start(script, "while True: print('on and on')", "--ranks", "1")
    assert process.stdout.readline() == "on and on\n"
    process.stdout.close()

    assert process.wait(LAST_RESORT) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.costly
def test_faults_are_injected_by_flags_and_told_in_the_report(script):
    changed = ("--degrade-link", "rank 0 up@0:0.5")

    slow = called("run --ranks 4 --delay-messages 5us --seed 3", *changed, script)
    dead = called("run --ranks 4 --kill-rank 2@iteration=1", script, code=1)

    told = in_one_line(slow.stderr)
    assert "LinkChange(link='rank 0 up', at='0', factor=0.5)" in told
    assert "MessageDelay(mean='5us', seed=3)" in told
    assert "rank 2: was killed, at " in dead.stderr
    assert f"ranks 0, 1, 3 at {script.name}:15: model(torch.ones(1, 100)).sum().backward()" in dead.stderr
    assert "Traceback" not in dead.stderr


def test_kernels_of_a_run_take_as_long_as_on_the_slowest_of_all_ranks_unless_told_otherwise(
    script,
):
    on_gpus = f"run --ranks 16 --network dgx-h100 --compute h100 --fake {script}"
    late, in_time = (
        reported(on_gpus.replace("--fake", f"--fake {options}")) for options in ("", "--inefficiencies none")
    )

    lost = {own["cause"]: own["seconds"] for own in late["lost_to"] if own["iteration"] == 3}
    assert late["slowest"] > in_time["slowest"] == 1
    assert lost["slowest rank"] > 0
    assert {own["seconds"] for own in in_time["lost_to"] if own["cause"] == "slowest rank"} == {0}
    assert late["assumptions"]["on"]["dgx-h100"]["inefficiencies"] == ["all"]
    assert in_time["assumptions"]["inefficiencies"] == "none"
