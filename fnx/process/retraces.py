"""Functions that are traced again and again: which argument of the calls changed."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ref

from fnx.core.aval import ShapedArray
from fnx.core.source import is_internal, name_of, warn_user
from fnx.pytree import operations
from fnx.pytree.flatten_fun import signature_of
from fnx.pytree.key_paths import keystr

OFTEN = 3  # the trace of a function that is worth a note

Key = tuple[Any, tuple, tuple]  # structure of the dynamic arguments, static ones, types of leaves


class RetraceWarning(UserWarning):
    """A jitted function was traced once more; each trace is compiled, which takes long."""


class _Leaf:
    """What stands for a leaf of arguments."""

    def __init__(self, aval: ShapedArray):
        self.aval = aval


class History:
    """What functions were traced for; a function is noted once, however often it was jitted."""

    def __init__(self) -> None:
        # By identity: code that was compiled anew, as by running a cell again, is another function's.
        self._seen: dict[int, tuple[Any, list[dict]]] = {}

    def note(self, fun: Callable, static: Any, key: Key) -> str:
        """What to say of the trace of a function that begins: "" but for its third."""
        inner = inspect.unwrap(getattr(fun, "func", fun))
        owner = getattr(inner, "__code__", inner)
        if is_internal(
            getattr(owner, "co_filename", "")
        ):  # what fnx jits is not the user's to mend
            return ""
        seen = self._of(owner)
        if len(seen) >= OFTEN:
            return ""
        seen.append(_described(fun, static, key))
        return _note(fun, seen) if len(seen) == OFTEN else ""

    def _of(self, owner: Any) -> list[dict]:
        """What an object was traced for, as long as it lives."""
        key = id(owner)
        if key not in self._seen:
            try:
                life = ref(owner, lambda _: self._seen.pop(key, None))
            except TypeError:  # there are no weak references to it: it is kept
                life = owner
            self._seen[key] = life, []
        return self._seen[key][1]


def _described(fun: Callable, static: Any, key: Key) -> dict[str, Any]:
    """Each argument's name and path, and its type, or its value if it is static."""
    try:
        return _named(fun, static, key)
    except Exception:  # classes of users may refuse what stands for leaves, or to be shown
        found: dict[str, Any] = {f"leaf {k}": aval for k, aval in enumerate(key[2])}
        for at, kind, value in key[1]:
            found[f"argument {at}"] = "static", hash(value), f"a value of {kind.__name__}"
        return found


def _named(fun: Callable, static: Any, key: Key) -> dict[str, Any]:
    treedef, fixed, avals = key
    args, kwargs = operations.tree_unflatten(treedef, [_Leaf(a) for a in avals])
    args, kwargs = static.join(args, kwargs, fixed)
    given = {str(k): x for k, x in enumerate(args)} | kwargs
    signature = signature_of(fun)
    if signature is not None:
        with suppress(TypeError):
            given = dict(signature.bind(*args, **kwargs).arguments)
    found: dict[str, Any] = {}
    for name, value in given.items():
        paths, _ = operations.tree_flatten_with_path(value)
        for path, leaf in paths:
            what = leaf.aval if type(leaf) is _Leaf else ("static", type(leaf).__name__, repr(leaf))
            found[name + keystr(path)] = what
    return found


def _note(fun: Callable, seen: list[dict]) -> str:
    before, now = seen[-2:]
    changes = [
        f"{name}: {_change(before.get(name), now.get(name))}"
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    head = f"{name_of(fun)} is traced and compiled for the {len(seen)}rd time"
    if not changes:
        return (
            f"{head}, for arguments of the same types: jit was called on it anew, or what it closes "
            "over, a setting or a named axis has changed. Call jit once, outside of loops, and keep the "
            "function that it gives."
        )
    more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f"{head}. What changed: {'; '.join(changes[:3])}{more}. {_advice(before, now)}"


def _change(before: Any, now: Any) -> str:
    if before is None or now is None:
        return f"is {'no longer' if now is None else 'newly'} given"
    if isinstance(before, tuple) or isinstance(now, tuple):
        return f"static value {_text(before)} -> {_text(now)}"
    kinds = [k for k in ("shape", "dtype", "weak_type") if getattr(before, k) != getattr(now, k)]
    kind = " and ".join(k.replace("_", " ") for k in kinds)
    return f"{kind} {before.str_short()} -> {now.str_short()}"


def _text(what: Any) -> str:
    return f"{what[2]:.60}" if isinstance(what, tuple) else what.str_short()


def _advice(before: dict, now: dict) -> str:
    """How to trace less often, by the first thing that changed."""
    name = next(n for n in dict.fromkeys([*before, *now]) if before.get(n) != now.get(n))
    old, new = before.get(name), now.get(name)
    if old is None or new is None:
        return "Call it with arguments of one structure."
    if isinstance(old, tuple) or isinstance(new, tuple):
        return "Leave arguments that change often dynamic, as arrays."
    if old.shape != new.shape:
        return "Pad arrays to a few sizes, or give all the same."
    return (
        "Give arguments one dtype: Python numbers are weakly typed, jnp.asarray(x, dtype) is not."
    )


_history = History()


def look(fun: Callable, static: Any, key: Key) -> None:
    """Warn, once a function, of one that is traced for the third time."""
    text = _history.note(fun, static, key)
    if text:
        warn_user(text, RetraceWarning)


__all__ = ["History", "RetraceWarning", "look"]
