"""A heat strip: the numbers of a small grid as coloured cells, in SVG."""

import numpy as np

from fnx.core import policy

# From dark to bright, alike in steps of lightness, told apart by people who see fewer colours, too.
_STOPS = np.array(
    [[0x3B, 0x1C, 0x5F], [0x3A, 0x5A, 0x98], [0x2A, 0x93, 0x8F], [0x6C, 0xC1, 0x5F], [0xF6, 0xE0, 0x3B]]
)  # fmt: skip
_BAD = {"NaN": "#e5484d", "inf": "#ff8c1a", "-inf": "#8f5fd6"}


def colours() -> list[str]:
    """The colours of numbers from least to greatest."""
    at = np.linspace(0, len(_STOPS) - 1, policy.STRIP_COLOURS)
    channels = [np.interp(at, np.arange(len(_STOPS)), _STOPS[:, k]) for k in range(3)]
    return [f"#{int(r):02x}{int(g):02x}{int(b):02x}" for r, g, b in zip(*channels, strict=True)]


def _levels(cells: np.ndarray, rounding: float) -> np.ndarray:
    """The number of each cell's colour; -1, -2, -3 for what is no finite number.

    Numbers that relatively differ by less than `rounding` are the same.
    """
    finite = np.isfinite(cells)
    levels = np.where(np.isnan(cells), -1, np.where(cells > 0, -2, -3))
    if finite.any():
        known = cells[finite]
        least, greatest = (
            known.min() / 2,
            known.max() / 2,
        )  # halves, whose difference cannot overflow
        width = greatest - least
        alike = width <= rounding * max(abs(least), abs(greatest))
        share = (known / 2 - least) / width if not alike else np.full(known.shape, 0.5)
        top = policy.STRIP_COLOURS
        levels[finite] = np.clip((share * top).astype(int), 0, top - 1)
    return levels


def _runs(levels: np.ndarray, level: int, width: int, height: int) -> str:
    """The cells of one colour as a path, those side by side as one box."""
    path = []
    for y, row in enumerate(levels == level):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        for start, end in edges.reshape(-1, 2).tolist():
            long = (end - start) * width
            path.append(f"M{start * width} {y * height}h{long}v{height}h{-long}z")
    return "".join(path)


def strip(cells: np.ndarray, label: str, rounding: float = 0.0) -> str:
    """The grid as SVG; NaN and infinities have colours of their own."""
    levels = _levels(cells, rounding)
    rows, columns = levels.shape
    width = max(2, min(16, 384 // columns))
    height = 18 if rows == 1 else max(2, min(16, 192 // rows))
    fills = dict(enumerate(colours())) | {-1 - k: c for k, c in enumerate(_BAD.values())}
    paths = [
        f'<path fill="{fills[level]}" d="{_runs(levels, level, width, height)}"/>'
        for level in np.unique(levels).tolist()
    ]
    size = f'width="{columns * width}" height="{rows * height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" shape-rendering="crispEdges">'
        f"<title>{label}</title>{''.join(paths)}</svg>"
    )


def legend(cells: np.ndarray) -> list[tuple[str, str]]:
    """The names and colours of what is no finite number in a grid."""
    found = {"NaN": np.isnan(cells), "inf": cells == np.inf, "-inf": cells == -np.inf}
    return [(name, _BAD[name]) for name, where in found.items() if where.any()]


__all__ = ["colours", "legend", "strip"]
