"""Numbers for people: seconds, counts, shares, and tables of them."""

from collections.abc import Sequence

_SECONDS = (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")
_COUNTS = (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")


def seconds_of(x: float) -> str:
    """Seconds in a unit of their size: 1.5e-3 is "1.5 ms"."""
    if x <= 0:
        return "0"
    scale, unit = next((u for u in _SECONDS if x >= u[0]), _SECONDS[-1])
    return f"{x / scale:.3g} {unit}"


def count(x: float, unit: str) -> str:
    """A count with a prefix: 1500 bytes are "1.5 kB"."""
    scale, prefix = next((c for c in _COUNTS if x >= c[0]), _COUNTS[-1])
    return f"{x / scale:.3g} {prefix}{unit}".strip()


def percent(x: float) -> str:
    """A share: 0.5 is "50%"."""
    if 0 < x < 0.001:
        return "<0.1%"
    return f"{100 * x:.0f}%" if x >= 0.1 else f"{100 * x:.2g}%"


def shortened(text: str, most: int = 48) -> str:
    """The text, or the beginning of one that is longer."""
    return text if len(text) <= most else text[: most - 3] + "..."


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, the first flush left, the others flush right; empty columns are left out."""
    used = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
    widths = {k: max(len(row[k]) for row in rows) for k in used}
    return [
        "  ".join(
            row[k].ljust(widths[k]) if k == 0 else row[k].rjust(widths[k]) for k in used
        ).rstrip()
        for row in rows
    ]


__all__ = ["count", "percent", "seconds_of", "shortened", "table"]
