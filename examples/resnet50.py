"""ResNet-50 v1.5 on pictures that are made up, in plain torch: DDP, float32, tfloat32 or mixed precision.

torchrun --nproc-per-node 2 examples/resnet50.py --batch 2 --edge 64
testbed run --ranks 8 --network dgx-a100 --fake --compute a100 examples/resnet50.py --precision amp
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32, help="pictures of a rank")
parser.add_argument("--edge", type=int, default=224, help="of a picture")
parser.add_argument("--precision", choices=["fp32", "tf32", "amp"], default="fp32")
parser.add_argument("--steps", type=int, default=3)


class Bottleneck(nn.Module):
    """Three convolutions, and a way around them."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.narrow, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.wide, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.around = nn.Identity()
        if inputs != outputs or stride > 1:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.around = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        """Return what the convolutions and the way around make of x (pictures, channels, rows, columns)."""
        out = F.relu(self.norm1(self.narrow(x)), inplace=True)
        out = F.relu(self.norm2(self.conv(out)), inplace=True)
        out = self.norm3(self.wide(out))
        out += self.around(x)
        return F.relu(out, inplace=True)


def resnet50():
    """Return the model."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


args = parser.parse_args()
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"

torch.manual_seed(0)
model = resnet50().to(device, memory_format=torch.channels_last)
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "amp")
pictures = torch.randn(args.batch, 3, args.edge, args.edge, device=device)
pictures = pictures.to(memory_format=torch.channels_last)
labels = torch.randint(1000, (args.batch,), device=device)

for step in range(args.steps):
    begin = time.perf_counter()
    with torch.autocast(device.type, torch.float16, enabled=args.precision == "amp"):
        loss = F.cross_entropy(model(pictures), labels, label_smoothing=0.1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

    last = loss.item()
    speed = dist.get_world_size() * args.batch / (time.perf_counter() - begin)
    if rank == 0:
        print(f"step {step}: loss {last:.6f}, {speed:,.1f} pictures/s", flush=True)
dist.destroy_process_group()
