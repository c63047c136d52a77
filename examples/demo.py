"""Prove, train, predict and show, in a minute on two cores.

    make demo
    python examples/demo.py --output /tmp/demo

Proves three algorithms of all-reduce.  Trains `digits.py` in three ways: (a) processes over Gloo and (b) rank
threads on a simulated network run the same script with the same ring, and must end with the same bits; (c)
one process sees the whole batch, adds in another order, and in float64 must agree to rounding.  Predicts how
that training and ResNet-50 scale, and draws it.
"""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import testbed
from collectives.virtual import run
from ddp.profiles import Profile
from sim import load_network
from testbed.scripts.launch import launch, own_module

SCRIPT = Path(__file__).with_name("digits.py")
TRAINING_NETWORK, RANKS = "switch-100g", 4
NETWORKS = ["nvlink-400g", "switch-100g", "ethernet-25g"]
OPTIONS = ["--algorithm", "ring", "--dtype", "float64", "--seed", "0"]
MAX_DIFFERENCE, MIN_ACCURACY = 1e-10, 0.95
TIMEOUT_SECONDS = 300.0

Parameters = dict[str, torch.Tensor]


def main() -> int:
    """Do all of it; return 1 where something does not hold."""
    parser = argparse.ArgumentParser(description="Prove, train, predict and show, in a minute.")
    parser.add_argument("--output", type=Path, default=Path("results/demo"), help="folder of the results")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)

    print("1 Prove  all-reduce for every world size from 2 to 32, without data\n")
    proofs = testbed.verify(["naive", "ring", "tree"], ranks="2-32")
    proofs.show()

    print("\n2 Train  real handwritten digits, in float64; one script, three ways\n")
    recorded = folder / "digits-profile.json"
    a = in_processes(
        "(a) four processes over Gloo", RANKS, folder / "gloo", "--trace", trace_of(folder, "gloo")
    )
    c = in_processes("(c) one process, the whole batch", 1, folder / "single", "--record", str(recorded))
    b = in_virtual_time(folder / "virtual", recorded, trace_of(folder, "simulated"))
    checks = agreements(a, b, c)
    for claim, found, holds in checks:
        print(f"{'✓' if holds else '✗ FAILED'} {claim}: {found}")

    print("\n3 Predict  how training would scale, with and without overlap\n")
    scaling = testbed.scale(
        profile=[str(recorded), "resnet50"],
        network=NETWORKS,
        strategy=["after_backward", "wait_free"],
        ranks="1-1024x2",
        plot=folder / "scaling.png",
        html=folder / "scaling.html",
    )
    print(scaling.answer)
    for name, result in (("prove", proofs), ("predict", scaling)):
        (folder / f"{name}.json").write_text(json.dumps(result.document(), indent=2) + "\n")

    print(f"\n4 Show  in {folder}: scaling.png, scaling.html, prove.json, predict.json;")
    print("        trace-gloo.json and trace-simulated.json, for https://ui.perfetto.dev")
    return 0 if proofs.holds and all(holds for *_, holds in checks) else 1


def trace_of(folder: Path, what: str) -> str:
    """Return where one iteration of a run is written."""
    return str(folder / f"trace-{what}.json")


def in_processes(what: str, ranks: int, folder: Path, *options: str) -> dict[str, Any]:
    """Train in processes over Gloo, as torchrun would; return what is left in *folder*."""
    print(what)
    command = [
        *own_module("testbed.scripts.loopback"),
        str(SCRIPT),
        "--output",
        str(folder),
        *OPTIONS,
        *options,
    ]
    launch(command, ranks, timeout=TIMEOUT_SECONDS, quiet=True)
    return left_in(folder)


def in_virtual_time(folder: Path, recorded: Path, trace: str) -> dict[str, Any]:
    """Train on rank threads, where computation takes what was *recorded*; return what is left in *folder*."""
    print(f"(b) rank threads on a simulated {TRAINING_NETWORK}")
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        outcome = run(
            SCRIPT,
            network=load_network(TRAINING_NETWORK).topology(RANKS),
            argv=["--output", str(folder), *OPTIONS, "--trace", trace],
            compute=Profile.load(recorded).compute_charges(),
        )
    print(f"    {outcome.seconds:.3g} s of virtual time")
    return left_in(folder)


def left_in(folder: Path) -> dict[str, Any]:
    """Return the parameters with which a training ended, and how many held-out digits came out right."""
    parameters = torch.load(folder / "parameters.pt", map_location="cpu", weights_only=True)
    return {"parameters": parameters, **json.loads((folder / "metrics.json").read_text())}


def agreements(
    processes: dict[str, Any], virtual: dict[str, Any], single: dict[str, Any]
) -> list[tuple[str, str, bool]]:
    """Return what must hold between the three runs, what was found, and whether it holds."""
    a, b, c = (own["parameters"] for own in (processes, virtual, single))
    count = sum(tensor.numel() for tensor in a.values())
    differing = sum(num_differing(a[name], b[name]) for name in a)
    apart = max(float((a[name] - c[name]).abs().max()) for name in a)
    worst = min(own["accuracy"] for own in (processes, virtual, single))
    return [
        ("(a) and (b) end with bit-identical parameters", f"{differing} of {count:,} differ", differing == 0),
        (f"(c) agrees with them to {MAX_DIFFERENCE:g}", f"{apart:.1e} at most", apart <= MAX_DIFFERENCE),
        (f"more than {MIN_ACCURACY:.0%} of held-out digits right", f"{worst:.1%}", worst > MIN_ACCURACY),
    ]


def num_differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """Return how many elements of two tensors differ in any of their bits."""
    bits, others = (own.contiguous().reshape(-1).view(torch.int64) for own in (one, other))
    return int((bits != others).sum())


if __name__ == "__main__":
    sys.exit(main())
