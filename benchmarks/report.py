"""Rows of figures, and the three forms that they are given: a table, JSON, a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Spread

UNITS = {"memory": "B", "kernels": ""}


@dataclass(frozen=True)
class Row:
    """One figure: ours beside a rival's, or a count, or a mean over a group."""

    figure: str
    group: str
    metric: str
    rival: str
    target: float | None = None
    ours: Spread | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None
    threads: int | None = None
    error: str | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the ratio is within the target; None where there is no target."""
        if self.target is None:
            return None
        return self.error is None and self.ratio is not None and self.ratio.median <= self.target


def quantity(spread: Spread | None, metric: str) -> str:
    """A median with its unit, three digits."""
    if spread is None:
        return "-"
    value = spread.median
    if metric == "kernels":
        return f"{value:.0f}"
    scales = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))
    scale, prefix = next((s for s in scales if abs(value) >= s[0]), scales[3])
    return f"{value / scale:.3g} {prefix}{UNITS.get(metric, 's')}"


def factor(value: float) -> str:
    """A ratio with three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def cells(row: Row) -> list[str]:
    """A line of the table."""
    ratio, spread = "-", ""
    if row.ratio is not None:
        ratio = factor(row.ratio.median)
        if row.ratio.low != row.ratio.high:
            spread = f"{factor(row.ratio.low)} .. {factor(row.ratio.high)}"
    name = row.figure + (f" [{row.threads} thr]" if row.threads else "")
    verdict = {None: "", True: "yes", False: "NO"}[row.reached]
    target = "" if row.target is None else factor(row.target)
    ours, theirs = quantity(row.ours, row.metric), quantity(row.theirs, row.metric)
    return [name, row.metric, ours, row.rival, theirs, ratio, spread, target, verdict]


def table(rows: Sequence[Row], titles: dict[str, str], subject: str) -> str:
    """All rows under the titles of their groups."""
    head = ["figure", "metric", subject, "rival", "rival's", "ratio", "quartiles", "target", "ok"]
    lines = [cells(row) for row in rows]
    widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]

    def justified(line: list[str]) -> str:
        left = {0, 1, 3}
        padded = [
            c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths))
        ]
        return "  ".join(padded).rstrip()

    out = [justified(head), "-" * (sum(widths) + 2 * len(widths) - 2)]
    group = shown = None
    for row, line in zip(rows, lines, strict=True):
        if row.group != group:
            group = row.group
            out += ["", f"{titles.get(group, group)}"]
        out.append(justified(line))
        if row.error and (row.figure, row.error) != shown:
            shown = row.figure, row.error
            out.append(f"    {row.error}")
    judged = [row.reached for row in rows if row.reached is not None]
    out += ["", f"{sum(judged)} of {len(judged)} targets reached"]
    return "\n".join(out)


def stages_table(stages: dict[str, dict[str, dict[str, float]]]) -> str:
    """Trace, compile, first call and steady call apart; a column of each for each run."""
    if not stages:
        return ""
    names = ("trace", "compile", "first call", "call")
    width = max(len(name) for name in stages)
    lines = ["", "Seconds by stage: " + ", ".join(names), ""]
    for program, by_run in stages.items():
        for label, found in by_run.items():
            values = [quantity(Spread(v, v, v), "run") if v else "-" for v in map(found.get, names)]
            lines.append(
                "  ".join([program.ljust(width), label.ljust(12), *(v.rjust(9) for v in values)])
            )
    return "\n".join(lines)


def write_json(path: Path, rows: Sequence[Row], extra: dict) -> None:
    """Everything, with the machine and the raw samples in `extra`."""
    found = [asdict(row) | {"reached": row.reached} for row in rows]
    path.write_text(json.dumps({"rows": found, **extra}, indent=1))


def picture(path: Path, rows: Sequence[Row], titles: dict[str, str], subject: str) -> bool:
    """Ratios on a log axis with quartiles, and targets; False where matplotlib is absent."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [
        r for r in rows if r.ratio is not None and r.ratio.median > 0 and r.metric != "kernels"
    ]
    if not shown:
        return False
    figure, axes = plt.subplots(figsize=(11, 1.5 + 0.21 * len(shown)), layout="constrained")
    colours = {True: "#2a7f3f", False: "#c0392b", None: "#7f8c8d"}
    for k, row in enumerate(shown):
        colour = colours[row.reached]
        axes.plot([row.ratio.low, row.ratio.high], [k, k], color=colour, lw=3, alpha=0.35)
        axes.plot(row.ratio.median, k, "o", color=colour, ms=5)
        if row.target:
            axes.plot(row.target, k, "|", color="black", ms=10, mew=1.5)
        if k == 0 or shown[k - 1].group != row.group:
            axes.axhline(k - 0.5, color="0.8", lw=0.6)
            axes.annotate(
                titles.get(row.group, row.group),
                (1.0, k),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="center",
                fontsize=7,
                color="0.35",
            )
    axes.axvline(1.0, color="0.5", lw=0.8)
    axes.set_xscale("log")
    axes.set_ylim(len(shown) - 0.5, -0.5)
    labels = [
        f"{r.figure}, {r.metric} / {r.rival}" + (f", {r.threads} thr" if r.threads else "")
        for r in shown
    ]
    axes.set_yticks(range(len(shown)), labels, fontsize=7)
    axes.set_xlabel(
        f"{subject}'s time over the rival's: median and quartiles; bar: target; "
        "green: reached, red: missed, grey: no target"
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.grid(axis="x", color="0.92")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
