"""`jax._src.traceback_util`: which files are a library's, so that errors name its user's line."""

from collections.abc import Callable
from types import FrameType, TracebackType
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


def filter_traceback(tb: TracebackType | None) -> TracebackType | None:  # jaxls
    """A traceback of the user's frames alone; None where there is none."""
    if tb is None:
        return None
    rest = filter_traceback(tb.tb_next)
    return (
        TracebackType(rest, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
        if include_frame(tb.tb_frame)
        else rest
    )


def include_frame(frame: FrameType) -> bool:  # equinox
    """Whether a frame is the user's: of neither fnx nor a library that registered itself."""
    return not source.is_internal(frame.f_code.co_filename)
