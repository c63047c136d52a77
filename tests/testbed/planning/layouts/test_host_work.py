"""Host's work of a layer in layouts: what a script of the same layers has for its host to do."""

from pathlib import Path

import pytest

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim.hardware import Issued
from testbed.planning.layouts.framework import FRAMEWORKS

TWIN = Path(__file__).parents[4] / "benchmarks" / "twins" / "nanotron_layers.py"
HOST = FRAMEWORKS["nanotron"].host


def counts(tp, layers, passes):
    """Return what a step of the twin has for its host to do."""
    argv = ("--tp", str(tp), "--layers", str(layers), "--passes", str(passes))
    outcome = run(
        str(TWIN), ranks=8, network="dgx-h100", compute=Roofline("h100"), fake=True, argv=argv, fold=True
    )
    count_of = {own.what: own.count for own in outcome.report.issued_by}
    return [count_of[what] for what in ("operations", "boundaries", "collectives")]


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:`torch.distributed:FutureWarning")  # older torch has no newer names
@pytest.mark.parametrize(("tp", "work"), [(1, HOST.layer), (8, HOST.parallel_layer)])
def test_a_layer_of_a_layout_has_for_its_host_what_that_of_a_script_has(tp, work):
    one, two = (
        [more - less for less, more in zip(counts(tp, layers, 1), counts(tp, layers, 2), strict=True)]
        for layers in (1, 2)
    )

    assert Issued(*(more - less for less, more in zip(one, two, strict=True))) == work
