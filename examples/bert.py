"""BERT-large's pre-training on words that are made up, in plain torch: DDP, unfused attention, accumulation.

torchrun --nproc-per-node 2 examples/bert.py --layers 2 --batch 2 --words 64
testbed run --ranks 8 --network dgx-a100 --fake --compute a100 examples/bert.py --batch 256 --precision amp
"""

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, VOCABULARY = 1024, 16, 30528

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--batch", type=int, default=32, help="sequences of a rank in one pass")
parser.add_argument("--accumulate", type=int, default=1, help="passes of a step")
parser.add_argument("--words", type=int, default=128, help="of a sequence")
parser.add_argument("--hidden", type=float, default=0.15, help="part of the words that is to be found")
parser.add_argument("--precision", choices=["fp32", "tf32", "amp"], default="fp32")
parser.add_argument("--steps", type=int, default=3)


class Layer(nn.Module):
    """Attention and two linear layers, each followed by a norm."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, mask):
        """Return the layer of x (sequences, words, width), with a mask that is added to scores."""
        q, k, v = (
            part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + mask
        weights = F.dropout(scores.softmax(-1), 0.1)
        read = (weights @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + F.dropout(self.out(read), 0.1))
        return self.norm2(x + F.dropout(self.narrow(F.gelu(self.wide(x))), 0.1))


class Bert(nn.Module):
    """The model, with the head that finds hidden words."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(512, WIDTH)
        self.norm, self.head_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.head, self.bias = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, words, mask, hidden):
        """Return logits of the words (sequences, words) whose numbers in the batch are hidden."""
        places = torch.arange(words.shape[1], device=words.device)
        x = F.dropout(self.norm(self.words(words) + self.places(places)), 0.1)
        for layer in self.layers:
            x = layer(x, mask)
        found = self.head_norm(F.gelu(self.head(x.flatten(0, 1).index_select(0, hidden))))
        return F.linear(found, self.words.weight, self.bias)


args = parser.parse_args()
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"

torch.manual_seed(0)
model = DistributedDataParallel(Bert().to(device), gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "amp")
words = torch.randint(VOCABULARY, (args.batch, args.words), device=device)
mask = torch.zeros(args.batch, 1, 1, args.words, device=device)
hidden = torch.arange(max(1, int(args.hidden * words.numel())), device=device)
right = torch.randint(VOCABULARY, (len(hidden),), device=device)

for step in range(args.steps):
    begin = time.perf_counter()
    for number in range(args.accumulate):
        is_last = number == args.accumulate - 1
        with contextlib.nullcontext() if is_last else model.no_sync():
            with torch.autocast(device.type, torch.float16, enabled=args.precision == "amp"):
                loss = F.cross_entropy(model(words, mask, hidden), right) / args.accumulate
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

    last = loss.item() * args.accumulate
    speed = dist.get_world_size() * args.accumulate * args.batch / (time.perf_counter() - begin)
    if rank == 0:
        print(f"step {step}: loss {last:.6f}, {speed:,.1f} sequences/s", flush=True)
dist.destroy_process_group()
