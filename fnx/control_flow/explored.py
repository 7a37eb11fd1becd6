"""Loops of a function that somebody explores: by Python where they look, else compiled.

`fnx.debug.explore` says which iterations people want to see (`spans` of `config.exploration`).
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, as_array
from fnx.core.errors import ASKED_FOR_NUMBERS, FnxError
from fnx.core.source import LoopSite
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import lt
from fnx.ops.structure.basic import convert
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice
from fnx.pytree import operations
from fnx.transforms.make_jaxpr import eval_shape

Tree = Any


def scan(
    f: Callable,
    carry: Tree,
    xs: Tree,
    count: int,
    reverse: bool,
    site: LoopSite,
    name: str,
    compiled: Callable[[Tree, Tree, int], tuple[Tree, Tree]],
) -> tuple[Tree, Tree]:
    """As `lax.scan`; `compiled(carry, rows, length)` runs the iterations that nobody looks at."""
    me = config.exploration.get()
    if not count:
        with me.compiled():
            return compiled(carry, xs, 0)
    error, parts, first = None, [], carry
    for start, stop, seen in me.spans(name, site, count, reverse):
        if not seen:
            done = _unseen(me, partial(compiled, carry, _rows(xs, start, stop), stop - start))
            if done is not None:
                carry, ys = done
                parts.append(ys)
                continue
        for k in reversed(range(start, stop)) if reverse else range(start, stop):
            with me.iteration(site, k), nullcontext() if seen else me.quiet():
                carry, y = f(carry, operations.tree_map(lambda x: _row(x, k), xs))  # noqa: B023
            if not parts and not _agree(first, carry):
                try:
                    with me.compiled():
                        types = eval_shape(lambda c, x: compiled(c, x, 0), first, _rows(xs, 0, 0))
                    carry = _converted(carry, types[0])
                except ASKED_FOR_NUMBERS:
                    pass  # it cannot be compiled, but people can look into it
                except FnxError as found:
                    error = found  # raised when people have seen all that comes
            parts.append(operations.tree_map(lambda leaf: _stacked(as_array(leaf)), y))
    if error is not None:
        raise error
    parts = parts[::-1] if reverse else parts
    return carry, operations.tree_map(lambda *leaves: _joined(leaves), *parts)


def while_loop(
    cond_fun: Callable, body_fun: Callable, val: Tree, site: LoopSite, compiled: Callable
) -> Tree:
    """As `lax.while_loop`; `compiled(cond, body, val)` runs the iterations that nobody looks at."""
    me = config.exploration.get()
    error, first = None, val
    for start, stop, seen in me.spans(getattr(body_fun, "__name__", ""), site, None, False):
        if not seen:
            done = _unseen(me, partial(_many, cond_fun, body_fun, val, start, stop, compiled))
            if done is not None:
                (val,) = done
                continue
        k = start
        while stop is None or k < stop:
            with me.iteration(site, k), nullcontext() if seen else me.quiet():
                if not cond_fun(val):
                    break
                val = body_fun(val)
            if not k and not _agree(first, val):
                try:
                    with me.compiled():
                        types = eval_shape(lambda v: compiled(cond_fun, body_fun, v), first)
                    val = _converted(val, types)
                except ASKED_FOR_NUMBERS:
                    pass  # it cannot be compiled, but people can look into it
                except FnxError as found:
                    error = found  # raised when people have seen all that comes
            k += 1
        else:
            continue
        break
    if error is not None:
        raise error
    return val


def _unseen(me: Any, run: Callable[[], tuple]) -> tuple | None:
    """What compiled iterations give; None if they ask for numbers, as functions may that are explored."""
    try:
        with me.compiled():
            return run()
    except ASKED_FOR_NUMBERS:
        return None


def _many(
    cond_fun: Callable, body_fun: Callable, val: Tree, start: int, stop: int | None, run: Callable
) -> tuple[Tree]:
    """The carry after iterations up to number `stop`, or all that there are."""
    if stop is None:
        return (run(cond_fun, body_fun, val),)
    left = as_array(stop - start)
    one, zero = as_array(1), as_array(0)

    def goes_on(state: tuple) -> Any:
        done, val = state
        return lt(done, left) & cond_fun(val)

    def step(state: tuple) -> tuple:
        done, val = state
        return add(done, one), body_fun(val)

    return (run(goes_on, step, (zero, val))[1],)


def _agree(before: Tree, after: Tree) -> bool:
    """Whether a carry has the types that it had."""
    if operations.tree_structure(before) != operations.tree_structure(after):
        return False
    pairs = zip(operations.tree_leaves(before), operations.tree_leaves(after))
    return all(
        (np.shape(x), as_array(x).dtype) == (np.shape(y), as_array(y).dtype) for x, y in pairs
    )


def _converted(tree: Tree, types: Tree) -> Tree:
    """Values in the dtypes in which a compiled loop would carry them."""

    def one(x: Any, like: Any) -> Array:
        x = as_array(x)
        if (x.dtype, x.weak_type) == (like.dtype, like.weak_type):
            return x
        return ConvertElementType(like.dtype, like.weak_type)(x)

    return operations.tree_map(one, tree, types)


def _rows(xs: Tree, start: int, stop: int) -> Tree:
    def cut(x: Array) -> Array:
        low, high = (start, *(0,) * (x.ndim - 1)), (stop, *x.shape[1:])
        return Slice(low, high)(x)

    return operations.tree_map(cut, xs)


def _row(x: Array, k: int) -> Array:
    return Reshape(x.shape[1:])(_rows(x, k, k + 1))


def _stacked(x: Array) -> Array:
    return Reshape((1, *x.shape))(x)


def _joined(parts: tuple) -> Array:
    strong = [p.dtype for p in parts if not p.weak_type]
    dtype = strong[0] if strong else parts[0].dtype
    arrays = [convert(p, dtype) for p in parts]
    return Concatenate(0)(*arrays) if len(arrays) > 1 else arrays[0]


__all__ = ["scan", "while_loop"]
