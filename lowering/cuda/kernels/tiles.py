"""Tiles of rows that a block has in shared memory."""

from typing import NamedTuple

from .thresholds import Limits


class Tile(NamedTuple):
    """What a block has of each of `rows`: `items` elements for each of `lanes` threads, side by side."""

    rows: int
    lanes: int
    items: int

    @property
    def length(self) -> int:
        return self.lanes * self.items

    @classmethod
    def of(cls, limits: Limits, n: int, most: int) -> "Tile":
        """The tiles of rows of n elements, at most so many a thread.

        Items are odd in number: so threads find theirs in different banks of shared memory.
        """
        most = max(_odd(most), 1)
        lanes = min(1 << (-(-n // most) - 1).bit_length(), limits.threads)
        return cls(limits.threads // lanes, lanes, min(_odd(-(-n // lanes) + 1), most))


def _odd(n: int) -> int:
    """The greatest odd number that is not greater."""
    return n - 1 + n % 2
