"""What programs asked JAX for and fnx does not have."""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple


class Missing(NamedTuple):
    """A name or module that is not there: who asked for it, and where first.

    >>> fnx.jax.Missing("jax.numpy.nothing", "mylib", "mylib/solve.py:12").name
    'jax.numpy.nothing'
    """

    name: str
    library: str
    place: str


_asked: dict[tuple[str, str], Missing] = {}


def report() -> list[Missing]:
    """What was asked for under JAX's names and is not there, by library, each once.

    A library may only have looked whether a name is there, and do without it.

    >>> import fnx.jax, jax
    >>> hasattr(jax.numpy, "no_such_function")
    False
    >>> "jax.numpy.no_such_function" in [m.name for m in fnx.jax.report()]
    True
    """
    return sorted(_asked.values(), key=lambda m: (m.library, m.name))


def note(name: str) -> Missing:
    """Remember that somebody asked for a name, and say who."""
    frame = next(_frames(), None)
    if frame is None:
        found = Missing(name, "?", "?")
    else:
        library = frame.f_globals.get("__name__", "?").partition(".")[0]
        found = Missing(name, library, f"{frame.f_code.co_filename}:{frame.f_lineno}")
    return _asked.setdefault((found.library, name), found)


def _frames() -> Iterator[FrameType]:
    """The frames of who asked, without those of the import system and of this package."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("fnx.", "importlib", "_frozen_importlib")) and name != "fnx":
            yield frame
        frame = frame.f_back
