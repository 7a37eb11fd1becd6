"""The picture: pelts, fitted populations, and the band in which they lie with probability 0.9."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .fit import Fit
from .model import STEPS_PER_YEAR
from .table import Table

BAND = 1.645  # standard errors on either side hold 90 %


class PlotError(RuntimeError):
    """The picture could not be written."""


def write_plot(path: str | Path, table: Table, fit: Fit) -> None:
    """Write the picture to ``path``, in the format that its ending names. Raises `PlotError`."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise PlotError("the plot needs matplotlib: pip install matplotlib") from error

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    times = table.years[0] + np.arange(len(fit.log_trajectory)) / STEPS_PER_YEAR
    for species, (name, colour) in enumerate([("hare", "tab:blue"), ("lynx", "tab:orange")]):
        middle, margin = fit.log_trajectory[:, species], BAND * fit.log_errors[:, species]
        low, high = np.exp(middle - margin), np.exp(middle + margin)
        axes.plot(table.years, table.pelts[:, species], "o", color=colour, label=f"{name}, pelts")
        axes.plot(times, np.exp(middle), color=colour, label=f"{name}, fitted")
        axes.fill_between(times, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.set(xlabel="year", ylabel="pelts, thousands")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(
        loc="outside upper center", ncols=6, title="Band: 90 % for the fitted populations"
    )
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise PlotError(f"{path}: the plot cannot be written ({error})") from error
