"""Self-test of virtual CUDA devices: whether this torch bears them.

What is not as it is known would end the process, so a torch that is not among those tried is tried in a
process of its own first.
"""

from __future__ import annotations

import functools
import subprocess
import sys

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.gpu.native.cuda_build import cuda_is_there
from collectives.virtual.notices import TRIED

_TIMEOUT = 120
_PROGRAM = "from collectives.virtual.gpu.native.self_test import attempt; attempt()"


@functools.cache
def check() -> None:
    """Check that virtual CUDA devices work here; the second time nothing is done.

    Raises:
        NotSupportedError: they do not.
    """
    if torch.__version__.startswith(TRIED) and torch.version.cuda is None and torch.version.hip is None:
        return
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except subprocess.TimeoutExpired:
        failure = [f"no end after {_TIMEOUT} s"]
    if failure is not None:
        raise NotSupportedError(
            f"virtual CUDA devices do not work with torch {torch.__version__}: {''.join(failure)}; use a "
            "build of torch 2.13 without CUDA, or a script that uses tensors of the CPU alone"
        )


def attempt() -> None:
    """Carry out a forward and a backward pass on a CUDA device that is not there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    mode.avoid_device_init  # noqa: B018 (asks whether there is a device, once)
    with cuda_is_there(lambda: 0, lambda: 1), torch.autograd.set_multithreading_enabled(False), mode:
        leaf = torch.empty(2, 3, device="cuda:0", requires_grad=True)
        (leaf * 2).sum().backward()
        if leaf.grad is None or leaf.grad.device != torch.device("cuda:0"):
            raise RuntimeError("the gradient is not on cuda:0")
