"""Every first-order primitive; a file holds a family and all its rules."""

from typing import Any

from fnx.core import lazy_imports


def __getattr__(name: str) -> Any:
    return lazy_imports.find(__name__, name)
