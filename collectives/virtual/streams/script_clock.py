"""Clock of a script on ranks with a GPU: ``time.time`` and its kin tell the virtual time of the rank's host.

So what a script measures itself, such as tokens per second, is what it would measure on the cluster: the
host's time, which the device may lag behind unless the script synchronizes.  ``time.sleep`` is work of the
host.  Code of torch, of the standard library and of this project goes on seeing the machine's clock, as does
what had taken a function out of ``time`` by name before the run; and ``datetime``, which is in C.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from collectives.virtual.isolation.patching import Replacement, replaced
from collectives.virtual.streams.gpu import Gpu, current_gpu
from sim.units import SECOND

_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_OWN = frozenset({"torch", "collectives", "ddp", "sim", "testbed", "simpy"})
_PS_PER_NS = SECOND // 10**9


def clock_of_script(is_gpu: bool) -> AbstractContextManager[None]:
    """Return a context in which scripts read virtual time on rank threads with a GPU, if there *is_gpu* one.

    ``time.time`` starts where the machine's clock is, all others at 0.
    """
    return replaced(_replacements(time.time_ns())) if is_gpu else nullcontext()


def _replacements(epoch_ns: int) -> Iterator[Replacement]:
    clocks: dict[str, Callable[[Gpu], float]] = {
        "time": lambda gpu: epoch_ns / 1e9 + gpu.now_ps() / SECOND,
        "time_ns": lambda gpu: epoch_ns + gpu.now_ps() // _PS_PER_NS,
        **dict.fromkeys(("monotonic", "perf_counter"), lambda gpu: gpu.now_ps() / SECOND),
        **dict.fromkeys(("monotonic_ns", "perf_counter_ns"), lambda gpu: gpu.now_ps() // _PS_PER_NS),
    }
    for name, virtual in clocks.items():
        yield time, name, _of_scripts(getattr(time, name), virtual)
    yield time, "sleep", _of_scripts(time.sleep, _sleep)
    yield timeit, "default_timer", _of_scripts(timeit.default_timer, clocks["perf_counter"])


def _sleep(gpu: Gpu, seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    gpu.host_work("sleep", round(seconds * SECOND))


def _of_scripts(original: Callable[..., Any], virtual: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is *virtual*, called with the GPU, for scripts of ranks with one, else *original*."""
    process = os.getpid()

    @functools.wraps(original)
    def called(*args: Any) -> Any:
        gpu = current_gpu()
        if gpu is None or os.getpid() != process:
            return original(*args)
        frame = sys._getframe(1)
        if not _is_of_script(frame.f_globals.get("__name__", ""), frame.f_code.co_filename):
            return original(*args)
        return virtual(gpu, *args)

    return called


@functools.lru_cache(maxsize=1024)
def _is_of_script(module: str, file: str) -> bool:
    """Return whether code of *module* in *file* is the script's, or of a package that it uses."""
    if module.partition(".")[0] in _OWN or file.startswith("<frozen"):
        return False
    path = Path(file)
    return not path.is_relative_to(_STANDARD) or bool({"site-packages", "dist-packages"} & set(path.parts))
