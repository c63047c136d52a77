"""Page of a search for buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.output.table import percent, seconds
from testbed.pages.page import Plot
from testbed.pages.plots.lines import lines

if TYPE_CHECKING:
    from ddp.tuning.trials import Tuning


def tuning_answer(found: Tuning) -> str:
    """Return in a sentence what is best, and what it gains."""
    best, default = found.best, found.default
    how = f"{best.options.algorithm} with {best.options.strategy} in {len(best.nbytes)} buckets"
    gain = found.gain(best)
    if gain <= 0:
        return f"Nothing is faster than torch's default, a step of {seconds(default.seconds)}."
    return (
        f"A step of {seconds(best.seconds)} by {how}, {percent(gain)} less than torch's default, which takes "
        f"{seconds(default.seconds)}."
    )


def tuning_plots(found: Tuning) -> list[Plot]:
    """Return the step over one cap for all buckets."""
    own = found.torch.options
    curve = sorted(
        (trial.options.bucket_cap_mb, trial.seconds)
        for trial in found.trials
        if trial.options.bucket_cap_mb is not None
        and not trial.options.bucket_cap_mb_list
        and (trial.options.algorithm, trial.options.strategy) == (own.algorithm, own.strategy)
    )
    if len(curve) < 3:
        return []
    drawn = lines(
        {f"{own.algorithm}, {own.strategy}": curve},
        x="cap of a bucket (MiB)",
        y="step",
        spell_x="{:.3g}".format,
        spell_y=seconds,
    )
    return [Plot(drawn, "One cap for all buckets", "The axis of the step does not begin at 0.")]
