import numpy as np

from testbed.calibration.live.fit import Fitted
from testbed.calibration.live.plan import Row, Wiring, patterns_of
from testbed.plots.calibration_plot import plot_calibration


def test_fit_and_residuals_are_drawn(tmp_path):
    patterns = list(patterns_of(Wiring(3), 1 << 20))
    rows = tuple(Row(pattern, (1e-4 + pattern.nbytes * 1e-8,) * 4) for pattern in patterns)
    predicted = np.array([1.02 * row.median for row in rows])
    nothing = np.zeros(0)
    fitted = Fitted((), nothing, nothing, nothing, rows, predicted, Wiring(3))

    plot_calibration(fitted, tmp_path / "fit.svg", title="Calibration", note="A note.")

    drawn = (tmp_path / "fit.svg").read_text()
    for said in ("ours", "native", "broadcast, 2 ranks", "all-to-all, 3 ranks", "size of the buffer"):
        assert said in drawn
