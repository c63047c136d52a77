"""All-reduce algorithms over Gloo against a baseline, in pairs, in one run.

    torchrun --nproc-per-node 4 benchmarks/all_reduce_over_gloo.py --algorithms ring,tree

compares ours with Gloo's own.  How good the choice of ``auto`` is, one sees with it as the baseline:

    testbed bench --transport gloo --ranks 4 --algorithm all --output t
    torchrun --nproc-per-node 4 benchmarks/all_reduce_over_gloo.py --algorithms all --baseline auto:table=t

Each pair calls the one and then the other, the order changing from pair to pair, so that both see
the same weather.  A call takes as long as its slowest rank; with ``--calls`` it is the mean of several
that follow each other at once, as in ``testbed bench`` and nccl-tests.  Printed are the median of the ratios
of a pair, the algorithm's time over the baseline's, and the interval in which that median lies with
95 % confidence (bootstrap, seeded).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist

from collectives import NotSupportedError, algorithm_names, connect
from collectives.communicators.communicator import Communicator
from sim.units import format_size
from testbed.benchmarking.candidates import split_names
from testbed.options.arguments import parse_sizes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--algorithms", default="ring", help="comma-separated, or all")
    parser.add_argument("--baseline", default="native", help="what they are compared with")
    parser.add_argument("--sizes", default="4K-64M")
    parser.add_argument("--factor", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument(
        "--calls", type=int, default=1, help="that follow each other, of either side of a pair"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    baseline = connect(algorithm=args.baseline)
    names = ["native", *algorithm_names()] if args.algorithms == "all" else split_names(args.algorithms)
    compared = {name: connect(algorithm=name) for name in names}
    if dist.get_rank() == 0:
        print(f"{'size':>8}  {'algorithm':<20} {'baseline':>10} {'own':>10}  ratio  95 % interval")
    for nbytes in parse_sizes(args.sizes, args.factor):
        tensor = torch.zeros(nbytes // 4)
        for name, communicator in compared.items():
            try:
                pairs = [
                    measure_pair(baseline, communicator, tensor, args.calls, turn)
                    for turn in range(args.pairs + 2)
                ][2:]
            except NotSupportedError as refusal:
                if dist.get_rank() == 0:
                    print(f"{format_size(nbytes):>8}  {name:<20} {refusal}")
                continue
            if dist.get_rank() == 0:
                report(nbytes, name, np.array(pairs))
    dist.destroy_process_group()


def measure_pair(
    baseline: Communicator, other: Communicator, tensor: torch.Tensor, calls: int, turn: int
) -> tuple[float, float]:
    """Return the seconds of one call of each, on the slowest rank."""
    order = (baseline, other) if turn % 2 else (other, baseline)
    seconds = {communicator: measure(communicator, tensor, calls) for communicator in order}
    return seconds[baseline], seconds[other]


def measure(communicator: Communicator, tensor: torch.Tensor, calls: int) -> float:
    """Return the mean seconds of *calls* calls on the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        communicator.all_reduce(tensor)
    slowest = torch.tensor([(time.perf_counter() - began) / calls])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def report(nbytes: int, name: str, pairs: np.ndarray) -> None:
    """Print one line."""
    ratios = pairs[:, 1] / pairs[:, 0]
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    baseline_ms, own_ms = np.median(pairs, axis=0) * 1e3
    print(
        f"{format_size(nbytes):>8}  {name:<20} {baseline_ms:7.2f} ms {own_ms:7.2f} ms  "
        f"{np.median(ratios):5.2f}  {low:.2f} to {high:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
