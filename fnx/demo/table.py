"""The table of pelts: a CSV file of year, hare and lynx, checked before anything is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

COLUMNS = ("year", "hare", "lynx")
FEWEST_YEARS = 10  # one turn of the cycle: less says nothing about its period
PELTS = Path(__file__).with_name("lynx_hare.csv")


class TableError(ValueError):
    """A table that cannot be fitted; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class Table:
    """Years of shape ``(n,)``, and the counts of hare and lynx in them, of shape ``(n, 2)``."""

    years: np.ndarray
    pelts: np.ndarray


def read_table(path: str | Path) -> Table:
    """Read a table of pelts.

    Lines that start with ``#`` are comments; the first other line names the columns year, hare and
    lynx; each later line is one year, following the year above it. Raises `TableError`.
    """
    lines = _lines(Path(path))
    if not lines:
        raise TableError(f"{path}: the table is empty; expected the columns {','.join(COLUMNS)}")
    (number, head), *rows = lines
    if tuple(name.strip() for name in head.split(",")) != COLUMNS:
        raise TableError(
            f"{path}, line {number}: expected the columns {','.join(COLUMNS)}, found {head!r}"
        )
    values = [_row(path, number, text) for number, text in rows]
    if len(values) < FEWEST_YEARS:
        raise TableError(
            f"{path}: the table is cut short: {len(values)} years, at least {FEWEST_YEARS} are "
            "needed to see one cycle"
        )
    for (number, _), before, row in zip(rows[1:], values, values[1:], strict=False):
        if row[0] != before[0] + 1:
            raise TableError(
                f"{path}, line {number}: year {row[0]:g} follows {before[0]:g}; "
                "expected one line for each year"
            )
    table = np.array(values)
    return Table(table[:, 0], table[:, 1:])


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path}: not a text file; expected comma-separated numbers") from error
    except OSError as error:
        raise TableError(f"{path}: cannot be read ({error.strerror})") from error
    numbered = enumerate((line.strip() for line in text.splitlines()), start=1)
    return [(number, line) for number, line in numbered if line and not line.startswith("#")]


def _row(path: str | Path, number: int, text: str) -> list[float]:
    fields = text.split(",")
    if len(fields) != len(COLUMNS):
        raise TableError(
            f"{path}, line {number}: {len(fields)} of {len(COLUMNS)} values in {text!r}; "
            "is the table cut short?"
        )
    return [_number(path, number, name, field) for name, field in zip(COLUMNS, fields, strict=True)]


def _number(path: str | Path, number: int, name: str, field: str) -> float:
    try:
        value = float(field)
    except ValueError as error:
        raise TableError(
            f"{path}, line {number}: {name} is {field.strip()!r}, not a number"
        ) from error
    if not math.isfinite(value):
        raise TableError(f"{path}, line {number}: {name} is {value}, not a finite number")
    if name != "year" and value <= 0:
        raise TableError(f"{path}, line {number}: {name} is {value:g}; pelts must be positive")
    return value
