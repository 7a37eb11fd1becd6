"""Names of `jax.experimental.layout`: how an array lies in memory, which here is always by rows."""

from collections.abc import Sequence
from typing import Any

from fnx.core.fast_dataclasses import dataclass

__all__ = ["Format", "Layout"]


@dataclass(frozen=True)
class Layout:
    """The order of axes in memory, slowest first.

    >>> from fnx.experimental.layout import Layout
    >>> Layout((0, 1)).major_to_minor
    (0, 1)
    """

    major_to_minor: Sequence[int]


@dataclass(frozen=True)
class Format:
    """A layout and a sharding.

    >>> from fnx.experimental.layout import Format
    >>> Format(sharding=fnx.sharding.SingleDeviceSharding()).layout is None
    True
    """

    layout: Any = None
    sharding: Any = None
