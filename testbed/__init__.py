"""The command line and its functions: prove, measure, predict and show with the packages below.

What a command can do, a function of the same name and words can, too; it returns a `testbed.result.Result`,
which shows itself in a notebook, and whose rows are a DataFrame:

    import testbed

    testbed.simulate("ring", network="dgx-h100", ranks=64, nbytes="1M-1G").to_dataframe()

A script says of its own kernels by `fused` and `cost` what a virtual GPU charges; elsewhere they do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.virtual.computation.compiled import fused
    from collectives.virtual.computation.stated import cost
    from testbed.commands.bench import bench
    from testbed.commands.calibrate import calibrate
    from testbed.commands.compare import compare
    from testbed.commands.doctor import doctor
    from testbed.commands.env import env
    from testbed.commands.export import export
    from testbed.commands.fuzz import fuzz
    from testbed.commands.network import network
    from testbed.commands.plan import plan
    from testbed.commands.profile import profile
    from testbed.commands.run import run
    from testbed.commands.same import same
    from testbed.commands.scale import scale
    from testbed.commands.show import show
    from testbed.commands.simulate import simulate
    from testbed.commands.synthesize import synthesize
    from testbed.commands.tune import tune
    from testbed.commands.validate import validate
    from testbed.commands.verify import verify

__version__ = "1.0.0"

__all__ = [
    "bench",
    "calibrate",
    "compare",
    "cost",
    "doctor",
    "env",
    "export",
    "fused",
    "fuzz",
    "network",
    "plan",
    "profile",
    "run",
    "same",
    "scale",
    "show",
    "simulate",
    "synthesize",
    "tune",
    "validate",
    "verify",
]


_OF_SCRIPTS = {"cost": "stated", "fused": "compiled"}


def __getattr__(name: str) -> Any:
    """Return the function of a command, or one for scripts, which is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'testbed' has no attribute {name!r}")
    from importlib import import_module

    room = "testbed.commands" if name not in _OF_SCRIPTS else "collectives.virtual.computation"
    return getattr(import_module(f"{room}.{_OF_SCRIPTS.get(name, name)}"), name)
