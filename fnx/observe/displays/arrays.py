"""Arrays, keys and tracers in a notebook."""

from typing import Any

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import ConcreteArray
from fnx.core.buffer import Buffer, on_host
from fnx.core.interpreter import Interpreter, Tracer, evaluate
from fnx.observe.displays import markup
from fnx.observe.displays.statistics import Summary, cells, is_sampled, rounding, summary
from fnx.observe.displays.strip import legend, strip
from fnx.process.shardings import SingleDeviceSharding, sharding_of


def _facts(x: Any) -> list[tuple[str, Any]]:
    """What is known of an array without its numbers."""
    dtype = dtypes.NAME.get(x.dtype, str(x.dtype))
    weak = " (weak: gives way to the dtype of what it meets)" if x.weak_type else ""
    rows: list[tuple[str, Any]] = [("shape", x.shape), ("dtype", f"{dtype}{weak}")]
    held = getattr(x, "_value", None)
    sharding = None if hasattr(x, "holds_keys") else sharding_of(x)
    if sharding is None or isinstance(sharding, SingleDeviceSharding):
        rows.append(("device", held.device if isinstance(held, Buffer) else x.device))
    else:
        count = len(sharding.device_set)
        rows.append(("devices" if count > 1 else "device", count if count > 1 else x.device))
        rows.append(("sharding", sharding))
    rows.append(("bytes", markup.bytes_text(x.nbytes)))
    return rows


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _found(s: Summary, dtype: np.dtype) -> list[tuple[str, Any]]:
    """The rows of a summary."""
    kind = dtypes.kind(dtype)
    if kind == "b":
        count = round(s.mean * s.seen)
        return [("true", f"{count:,} of {s.seen:,} ({100 * s.mean:.3g} %)")]
    of = " magnitude" if kind == "c" else ""
    rows: list[tuple[str, Any]] = []
    if s.least is not None:
        finite = " of finite elements" if s.nans or s.infinities else ""
        values = " / ".join(map(_number, (s.least, s.mean, s.greatest)))
        rows.append((f"least / mean / greatest{of}", values + finite))
    else:
        rows.append((f"least / mean / greatest{of}", "no finite element"))
    if kind in "fc":
        rows += [("NaN", f"{s.nans:,}"), ("infinities", f"{s.infinities:,}")]
    return rows


def _heat(value: np.ndarray) -> str:
    """The strip of an array of rank 1 and more; of more than two axes that of the first slice."""
    inner = (0,) * (value.ndim - 2)
    part = value[inner] if inner else value
    grid, steps = cells(part)
    said = [] if not inner else [f"first slice, x[{', '.join(map(str, inner))}], of {value.shape}"]
    if is_sampled(part):
        said.append(f"each cell is one element of {part.size:,}")
    elif max(steps) > 1:
        size = steps[1] if part.ndim == 1 else f"{steps[0]} by {steps[1]}"
        said.append(f"each cell is the mean of up to {size} elements")
    label = "values from dark (least) to bright (greatest)"
    keys = "".join(
        [f'<span style="color:{c}">\u25a0</span> {markup.text(n)} ' for n, c in legend(grid)]
    )
    notes = markup.note("; ".join(said)) if said else ""
    return strip(grid, label, rounding(value)) + (f"<div>{keys}</div>" if keys else "") + notes


def _values(x: ConcreteArray) -> str:
    """The numbers as text, folded away where they are many."""
    if x.ndim > policy.PRINTED_RANK and x.size > policy.PRINTED_ELEMENTS:
        return ""
    return markup.folded("values", markup.listing(repr(x)), x.size <= policy.UNFOLDED_ELEMENTS)


def _numbers(x: ConcreteArray) -> str:
    """What is told of the numbers of an array."""
    held: Any = x._value
    if x.size == 0:
        return markup.note("no elements")
    if x.dtype == dtypes.float0:
        return markup.note("float0: the tangent of integers, which has no values")
    elsewhere = isinstance(held, Buffer) and held._host is None
    if elsewhere and x.size > policy.SUMMARISED_ELEMENTS:
        return markup.note("the numbers are on the device, and too many to bring here for this")
    value = on_host(held)
    found = summary(value)
    parts = [markup.table(_found(found, x.dtype))]
    if found.sampled:
        parts.insert(0, markup.note(f"sampled: {found.seen:,} of {found.size:,} elements", "warn"))
    if x.ndim:
        parts.append(_heat(value))
    return "".join(parts) + _values(x)


def concrete(x: ConcreteArray) -> str:
    """An array of numbers."""
    if x.is_deleted():
        rows = [("shape", x.shape), ("dtype", dtypes.NAME.get(x.dtype, str(x.dtype)))]
        said = "deleted, or donated to a function that took its memory"
        return markup.page(markup.head("Array"), markup.table(rows), markup.note(said, "bad"))
    return markup.page(markup.head("Array"), markup.table(_facts(x)), _numbers(x))


def keys(x: Any) -> str:
    """An array of random keys, over its words, which are no numbers to reckon with."""
    title = markup.head("Array", "of random keys")
    if isinstance(x.words, Tracer):
        return tracer(x.words, f"keys of shape {x.shape} and dtype {x.dtype}")
    if x.is_deleted():
        rows = [("shape", x.shape), ("dtype", x.dtype)]
        return markup.page(title, markup.table(rows), markup.note("deleted, or donated", "bad"))
    words = x.words
    many = words.size > policy.PRINTED_ELEMENTS
    shown = "" if many else markup.folded("words", markup.listing(str(words)), x.ndim == 0)
    return markup.page(title, markup.table(_facts(x)), shown)


_HINT = (
    "This is no value: it stands for one while a function is transformed, and has none yet. "
    "fnx.debug.print shows values when the program runs."
)


def _transformations(owner: Interpreter | None) -> list[str]:
    """What is transformed, from the innermost outwards; evaluation is none."""
    found: list[str] = []
    while owner is not None and owner is not evaluate:
        if owner.what not in found[-1:]:
            found.append(owner.what)
        owner = owner.parent
    return found


def tracer(x: Tracer, what: str = "") -> str:
    """What stands for an array while a function is transformed; never like numbers."""
    rows: list[tuple[str, Any]] = [("stands for", what or x.aval.str_short())]
    if not what:
        rows += [("shape", x.shape), ("dtype", dtypes.NAME.get(x.dtype, str(x.dtype)))]
    rows.append(("inside", ", within ".join(_transformations(x.owner))))
    made = x.made_at()
    if made is not None:
        rows.append(("made at", made))
    parts = [markup.head("Tracer", x.owner.what), markup.table(rows)]
    if x.owner.ended:
        parts.append(markup.note("that transformation has ended: this tracer is dead", "bad"))
    return markup.page(*parts, markup.note(_HINT, "warn"))


__all__ = ["concrete", "keys", "tracer"]
