"""The command: ``python -m fnx.demo [--json] [--plot FILE] [--data FILE]``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tqdm import tqdm

from .fit import MOST_STEPS, STARTS, Clock, Fit, FitError, fit
from .model import NAMES, PUBLISHED
from .plot import PlotError, write_plot
from .table import PELTS, TableError, read_table

PHASES = ("trace", "compile", "run", "total")


def main(arguments: list[str] | None = None) -> int:
    """Run the job; the exit status is 0, or 2 with one line on standard error."""
    options = _options(arguments)
    start = time.perf_counter()
    clock = Clock()
    try:
        table = read_table(options.data)
        _check_folder(options.plot)
        with tqdm(total=MOST_STEPS, desc=f"fit from {STARTS} starts", file=sys.stderr) as bar:
            result = fit(clock, table.pelts, lambda steps, value: _show(bar, steps, value))
            bar.total = result.steps
        write_plot(options.plot, table, result)
    except (TableError, FitError, PlotError) as error:
        print(f"fnx.demo: {error}", file=sys.stderr)
        return 2
    clock.seconds["total"] = time.perf_counter() - start
    print(_as_json(result, clock) if options.json else _as_text(result, clock, options.plot))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fnx.demo",
        description="Fit the Lotka-Volterra equations to a table of lynx and hare pelts.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", metavar="FILE", default="lynx_hare.png", help="picture to write")
    parser.add_argument("--data", metavar="FILE", default=PELTS, help="table of year,hare,lynx")
    return parser.parse_args(arguments)


def _check_folder(path: str) -> None:
    if not Path(path).absolute().parent.is_dir():
        raise PlotError(f"{path}: the plot cannot be written (no such folder)")


def _show(bar: tqdm, steps: int, value: float) -> None:
    bar.set_postfix_str(f"best {value:.6f}", refresh=False)
    bar.update(steps - bar.n)


def _as_json(result: Fit, clock: Clock) -> str:
    rows = zip(NAMES, result.estimates, result.standard_errors, PUBLISHED, strict=True)
    estimates = {
        name: {"estimate": float(value), "standard_error": float(error), "published": published}
        for name, value, error, published in rows
    }
    seconds = {phase: clock.seconds[phase] for phase in PHASES}
    return json.dumps({"estimates": estimates, "seconds": seconds})


def _as_text(result: Fit, clock: Clock, plot: str) -> str:
    lines = [f"{'':12}{'estimate':>10}{'std. error':>12}{'published':>11}"]
    rows = zip(NAMES, result.estimates, result.standard_errors, PUBLISHED, strict=True)
    for name, value, error, published in rows:
        lines.append(f"{name:12}{value:10.4f}{error:12.4f}{published:11.3f}")
    lines.append(f"{result.minima} of {STARTS} starts met here, after {result.steps} steps")
    lines.append("  ".join(f"{phase} {clock.seconds[phase]:.3f} s" for phase in PHASES))
    lines.append(f"plot: {plot}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
