"""What is traced and compiled, and why, in the log "fnx" of the module logging: settings log_compiles and
explain_cache_misses.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.source import brief, name_of, user_source

_log = logging.getLogger("fnx")


def tell_traced(fun: Callable, avals: Sequence[Any], seconds: float) -> None:
    """That a function was traced for these types."""
    _log.warning("Finished tracing %s of (%s) in %.6f s", name_of(fun), _types(avals), seconds)


def tell_compiled(name: str, seconds: float) -> None:
    """That a program was compiled, or found on disk."""
    _log.warning("Finished compiling %s in %.6f s", name or "a program", seconds)


def explain_miss(fun: Callable, key: tuple, seen: Sequence[tuple]) -> None:
    """Why no program of a jitted function fits a call: what differs from the most similar one.

    Keys are (structure, static arguments, types of leaves, ...), as `jit` looks programs up.
    """
    code = getattr(fun, "__code__", None)
    place = f" defined at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    lines = [f"TRACING CACHE MISS at {user_source()}:", f"  for {name_of(fun)}{place}"]
    if not seen:
        lines.append("  the function was not traced before by this jit")
    else:
        parts = min((_differences(key, before) for before in seen), key=len)
        lines += ["  programs of other calls do not fit; the most similar one differs:", *parts]
    _log.warning("%s", "\n".join(lines))


def _differences(key: tuple, before: tuple) -> list[str]:
    (tree, fixed, avals, *rest), (tree2, fixed2, avals2, *rest2) = key, before
    found = []
    if tree != tree2:
        found.append(f"  * the structure of arguments, now {tree} and before {tree2}")
    elif avals != avals2:
        found += [
            f"  * leaf {k} of the arguments, now {a.str_short()} and before {b.str_short()}"
            for k, (a, b) in enumerate(zip(avals, avals2, strict=True))
            if a != b
        ]
    if fixed != fixed2:
        found.append(
            f"  * static arguments, now {brief(fixed, 200)} and before {brief(fixed2, 200)}"
        )
    if rest != rest2:
        found.append("  * settings, the backend, the mesh, or named axes around the call")
    return found or [
        "  * nothing: arrays that the function closed over were traced ones, and are gone"
    ]


def _types(avals: Sequence[Any]) -> str:
    return ", ".join(a.str_short() for a in avals)
