"""Imports of the reducer: nothing that decides depends on what carries out."""

import subprocess
import sys

import collectives.errors
import ddp.errors

SHARED = {
    "collectives", "collectives.errors", "collectives.formats", "collectives.formats.json_document",
    "collectives.formats.whole_file", "collectives.lazy_names",
}  # fmt: skip
"""What both packages have: their errors, and how files are read and written."""


CORE = "ddp.reduction.reducer", "ddp.reduction.overlap", "ddp.reduction.bucketing", "ddp.profiles.profile"


def loaded_by(program: str) -> set[str]:
    program = f"import sys; {program}; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {*answer.stdout.split()}


def test_the_core_imports_neither_torch_nor_the_simulator():
    loaded = loaded_by(f"import ddp, ddp.errors, {', '.join(CORE)}")

    assert {*CORE} <= loaded
    assert {"torch", "numpy", "simpy", "sim"}.isdisjoint(loaded)
    assert {name for name in loaded if name.startswith("collectives")} <= SHARED


def test_the_simulated_driver_imports_no_torch():
    assert "torch" not in loaded_by("import ddp; ddp.simulate_step")


def test_what_is_not_supported_is_caught_as_an_error_of_either_package():
    refusal = ddp.errors.NotSupportedError("no such option")

    assert isinstance(refusal, ddp.errors.DDPError)
    assert isinstance(refusal, collectives.errors.NotSupportedError)
