"""`jax._src.traceback_util`: which files are a library's, so that errors name its user's line."""

from collections.abc import Callable
from types import FrameType
from typing import Any

from fnx.core import source

_exclude_paths: list[str] = []  # flax changes it


def register_exclusion(path: str) -> None:  # equinox, flax, jaxtyping
    """Take a file for a library's: its frames are nobody's own lines."""
    _exclude_paths.append(path)
    source.exclude(path)


def api_boundary(fun: Callable, **options: Any) -> Callable:  # equinox, flax
    """The function itself: errors of fnx name the user's line wherever they pass."""
    del options
    return fun


def include_frame(frame: FrameType) -> bool:  # equinox
    """Whether a frame is the user's: of neither fnx nor a library that registered itself."""
    return not source.is_internal(frame.f_code.co_filename)
