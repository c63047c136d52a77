"""Bundled profiles, derived from the shapes of reference models and a measured rate.

    python -m benchmarks.derive_profiles              # writes all of ddp/profiles/
    python -m benchmarks.derive_profiles gpt2-xl      # that one

The time of a step is what the published rate of whole training steps says; it is divided between the
layers by their floating-point operations.  A gradient is ready when the backward pass is through with
its layer.  Shapes, rates and sources: the files in ``benchmarks/shapes/``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.shapes import bert, gpt2_xl, llama3_8b, mpt, resnet50, ssd, transformer, transformer_xl
from benchmarks.shapes.model import Model, flops, names
from ddp.profiles import Buffers, Gradient, Profile

MODELS = {
    model.name: model
    for model in (
        resnet50.MODEL,
        ssd.MODEL,
        bert.BASE,
        bert.LARGE,
        transformer.MODEL,
        transformer_xl.BASE,
        transformer_xl.LARGE,
        gpt2_xl.MODEL,
        llama3_8b.MODEL,
        *mpt.MODELS,
    )
}
FOLDER = Path(__file__).parents[1] / "ddp" / "profiles"


def derive(model: Model) -> Profile:
    """Return the profile of one training step of *model*."""
    forward, backward = flops(model.layers)
    rate = model.samples_per_second * (forward + backward)
    step_seconds = model.batch / rate
    gradients: dict[str, Gradient] = {}
    done = 0
    for layer in reversed(model.layers):
        done += layer.backward_flops
        for name, numel in layer.tensors:
            gradients[name] = Gradient(
                name=name,
                numel=numel,
                dtype=model.dtype,
                nbytes=model.itemsize * numel,
                ready_seconds=round(done * step_seconds, 9),
            )
    return Profile(
        name=model.name,
        source=(
            f"derived from layer shapes by benchmarks/derive_profiles.py: {model.title}, "
            f"{_spell(forward)} forward and {_spell(backward)} backward per sample"
        ),
        device=f"{model.device} ({rate / 1e12:.1f} TFLOP/s over whole training steps)",
        forward_seconds=round(forward * step_seconds, 9),
        backward_seconds=round(backward * step_seconds, 9),
        gradients=tuple(gradients[name] for name in model.registration or names(model.layers)),
        buffers=Buffers.by_type(own for layer in model.layers for own in layer.buffers),
    )


def _spell(operations: int) -> str:
    scale, unit = (1e12, "TFLOP") if operations >= 1e12 else (1e9, "GFLOP")
    return f"{operations / scale:.2f} {unit}"


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        derive(MODELS[wanted]).save(FOLDER / f"{wanted}.json")
