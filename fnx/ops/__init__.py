"""Every first-order primitive; a file holds a family and all its rules."""

from typing import Any

from fnx.core import later


def __getattr__(name: str) -> Any:
    return later.find(__name__, name)
