"""Train a small convolutional network on handwritten digits, on as many ranks as there are.

    python examples/digits.py                                    one process, the whole batch
    torchrun --nproc-per-node 4 examples/digits.py               four processes over Gloo
    torchrun --nproc-per-node 4 examples/digits.py --backend testbed

This is an ordinary torchrun script and knows nothing of virtual time.  In virtual time it runs as

    collectives.virtual.run("examples/digits.py", ranks=4, network="switch-100g")

The global batch is always 128 and holds the same scans however many ranks share it, so all of
these learn the same network: bit by bit where the number of ranks is the same, and up to rounding
where it is not.

Data: the 1,797 scans of 8 × 8 pixels that scikit-learn brings along (E. Alpaydin and C. Kaynak,
UCI, 1998); 1,408 = 11 · 128 are trained on, the rest is held out.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddp import DistributedDataParallel, Profile, record_profile
from sim import Trace

GLOBAL_BATCH = 128
NUM_TRAINED = 11 * GLOBAL_BATCH


def main() -> None:
    """Train, write and read back a checkpoint, and report on the digits that were held out."""
    args = parse_arguments()
    dtype = getattr(torch, args.dtype)
    torch.set_num_threads(1)  # sums inside an operation in one order, whatever the machine
    if "RANK" in os.environ:
        dist.init_process_group(args.backend)
    else:
        dist.init_process_group(args.backend, store=dist.HashStore(), rank=0, world_size=1)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if GLOBAL_BATCH % world_size:
        raise SystemExit(f"the global batch of {GLOBAL_BATCH} cannot be shared by {world_size} ranks")
    output = shared_directory(args.output)
    trained_on, held_out = load_data(dtype, args.seed)
    sampler = DistributedSampler(trained_on, shuffle=True, seed=args.seed)
    loader = DataLoader(trained_on, batch_size=GLOBAL_BATCH // world_size, sampler=sampler)

    torch.manual_seed(args.seed)
    trace = Trace({"example": "digits", "world_size": world_size})
    model = DistributedDataParallel(
        new_network(dtype),
        algorithm=args.algorithm,
        bucket_cap_mb=0.05,  # small, so that this small network has a few buckets
        recorder=trace if args.trace else None,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    began = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            trace.spans.clear()  # what is left at the end is the last iteration
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1:2}/{args.epochs}: loss of the last batch on rank 0 {loss.item():.4f}")
    seconds = time.perf_counter() - began

    if rank == 0:
        torch.save(model.module.state_dict(), output / "parameters.pt")
    dist.barrier()  # nobody reads before it is written
    network = new_network(dtype)
    network.load_state_dict(torch.load(output / "parameters.pt"))
    accuracy = accuracy_on(held_out, network)

    if args.trace:
        save_trace(trace, args.trace)
    if args.record:
        images, labels = trained_on[: args.record_batch]
        record_backward(network, images, labels).save(args.record)
    if rank == 0:
        print(f"{accuracy:.2%} of {len(held_out)} held-out digits right, on {world_size} ranks; see {output}")
        metrics = {
            "accuracy": accuracy,
            "loss": loss.item(),
            "seconds": seconds,
            "world_size": world_size,
            "epochs": args.epochs,
            "dtype": args.dtype,
            "algorithm": args.algorithm,
            "backend": dist.get_backend(),
            "seed": args.seed,
        }
        (output / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="gloo", help="gloo or testbed (default: gloo)")
    parser.add_argument("--algorithm", default="ring", help="of all-reduce; native is the backend's own")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--output", type=Path, help="folder for parameters.pt and metrics.json")
    parser.add_argument("--trace", type=Path, help="file for a trace of the last iteration, for Perfetto")
    parser.add_argument("--record", type=Path, help="file for a profile of the backward pass (one process)")
    parser.add_argument("--record-batch", type=int, default=32, help="per-rank batch of that profile")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}")
    if args.record and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        parser.error("--record times computation alone: run it with one process")
    return args


def shared_directory(wanted: Path | None) -> Path:
    """Return the output folder; without a wish, a temporary one that rank 0 chooses."""
    chosen = [wanted]
    if dist.get_rank() == 0:
        chosen = [wanted or Path(tempfile.mkdtemp(prefix="digits-"))]
        chosen[0].mkdir(parents=True, exist_ok=True)
    dist.broadcast_object_list(chosen)
    return chosen[0]


def load_data(dtype: torch.dtype, seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return what is trained on and what is held out: images (1, 8, 8) from 0 to 1, and labels."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images = torch.from_numpy(images).to(dtype).div(16).view(-1, 1, 8, 8)[order]
    labels = torch.from_numpy(labels)[order]
    return (
        TensorDataset(images[:NUM_TRAINED], labels[:NUM_TRAINED]),
        TensorDataset(images[NUM_TRAINED:], labels[NUM_TRAINED:]),
    )


def new_network(dtype: torch.dtype) -> nn.Module:
    """Return a network of two convolutions and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ).to(dtype)


@torch.no_grad()
def accuracy_on(dataset: TensorDataset, network: nn.Module) -> float:
    """Return the fraction of *dataset* that *network* gets right."""
    images, labels = dataset.tensors
    return (network(images).argmax(dim=1) == labels).double().mean().item()


def record_backward(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Profile:
    """Return when each gradient becomes ready in a backward pass at this batch."""
    return record_profile(
        network,
        lambda: cross_entropy(network(images), labels).backward(),
        name=f"digits, batch {len(labels)}",
    )


def save_trace(trace: Trace, path: Path) -> None:
    """Write the spans of all ranks into one file, in which time begins with the first of them."""
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, trace.spans)
    if dist.get_rank() == 0:
        spans = [span for part in parts for span in part]
        zero = min(span.start_ps for span in spans)
        whole = Trace(trace.metadata)
        for span in spans:
            whole.span(
                span.rank, span.track, span.name, span.start_ps - zero, span.end_ps - zero, **span.args
            )
        whole.save(path)


if __name__ == "__main__":
    main()
