"""Loops: scan, map, while_loop, fori_loop."""

import builtins
import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from fnx.control_flow.bodies import (
    MANY_ITERATIONS,
    carry_error,
    evaluates_known_values,
    promoted,
    trace_body,
)
from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import (
    ConcretizationTypeError,
    InvalidValue,
    ShapeError,
    TypeMismatch,
    entrance,
)
from fnx.core.interpreter import Tracer
from fnx.core.source import LoopSite, brief, user_source
from fnx.interpreters.primitives.scan import Scan
from fnx.interpreters.primitives.while_loop import While
from fnx.interpreters.trace import CapturedRefs
from fnx.numpy.arrays.util import integer
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import lt
from fnx.ops.structure.basic import convert, scalar
from fnx.ops.structure.join import Concatenate, Iota
from fnx.ops.structure.slice import Slice
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of
from fnx.transforms.jit import BACKEND
from fnx.transforms.mutable_refs import Ref, RefGiven, carrying, taken_out, write
from fnx.transforms.vmap import vmap

Tree = Any


# --- scan --------------------------------------------------------------------------------------


@entrance
def scan(
    f: Callable,
    init: Tree,
    xs: Tree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    progress: bool = False,
) -> tuple[Tree, Tree]:
    """Loop over the leading axis of `xs`: `carry, y = f(carry, x)`; the last carry, the stacked ys.

    `init` is the first carry, a pytree whose shapes and dtypes stay the same. With `xs` None, `f` runs
    `length` times on x=None. `reverse` starts from the last row. Gradients keep what is cheapest to
    keep and compute the rest again. With `progress` a bar shows how far it is, as within
    `fnx.progress()`. TypeError for carries of other types or structure, ValueError for xs of different
    lengths.

    >>> lax.scan(lambda total, x: (total + x, total), 0.0, np.arange(3.0))
    (Array(3., dtype=float64), Array([0., 0., 1.], dtype=float64, weak_type=True))
    """
    del _split_transpose
    if not isinstance(unroll, Tracer) and integer(unroll, "unroll of scan") < 0:
        raise InvalidValue(f"scan with unroll={unroll}; expected a bool or a number of iterations")
    if not callable(f):
        raise TypeMismatch(f"scan needs a function, got {type(f).__name__}: {brief(f, 80)}")
    loop = _Loop(
        f"the body {name_of(f)} of scan", LoopSite("scan", user_source()), _shown(progress)
    )
    return _scan(f, init, xs, length, reverse, unroll, f, loop)


class _Loop(NamedTuple):
    """What errors call the body of a loop, where the user wrote it, whether to show how far it is."""

    what: str
    site: LoopSite
    progress: bool


def _shown(progress: Any) -> bool:
    """Whether a loop has a bar of its own; what draws it is then there."""
    if progress:
        import_module("fnx.observe.progress")
    return bool(progress)


def _scan(
    f: Callable, init: Tree, xs: Tree, length: int | None, reverse: bool, unroll: int | bool,
    owner: Callable, loop: _Loop,
) -> tuple[Tree, Tree]:  # fmt: skip
    try:
        return _plain_scan(f, init, xs, length, reverse, unroll, owner, loop)
    except RefGiven:
        if any(type(x) is Ref for x in operations.tree_leaves(xs)):
            return _scan_of_refs(f, init, xs, length, reverse, unroll, loop)
        raise
    except CapturedRefs as found:
        refs = found.refs
    carried = carrying(f, refs)

    def step(state: tuple, x: Tree) -> tuple[tuple, Tree]:
        values, (carry, y) = carried(state[0], state[1], x)
        return (values, carry), y

    state = [r.value for r in refs], init
    (values, last), ys = _scan(step, state, xs, length, reverse, unroll, step, loop)
    write(refs, values)
    return last, ys


def _scan_of_refs(
    f: Callable,
    init: Tree,
    xs: Tree,
    length: int | None,
    reverse: bool,
    unroll: int | bool,
    loop: _Loop,
) -> tuple[Tree, Tree]:
    """A scan over the rows of mutable references, too, which the body may write."""
    refs, others, joined = taken_out(xs, loop.what, rows=True)
    count = _length([r.value for r in refs], refs, length, loop.site.kind)

    def step(carry: Tree, x: tuple) -> Any:
        return f(carry, joined([r.at[x[0]] for r in refs], x[1]))

    rows = Iota(0, dtypes.int32, (count,))()
    return _scan(step, init, (rows, others), length, reverse, unroll, step, loop)


def _plain_scan(
    f: Callable, init: Tree, xs: Tree, length: int | None, reverse: bool, unroll: int | bool,
    owner: Callable, loop: _Loop,
) -> tuple[Tree, Tree]:  # fmt: skip
    what = loop.what
    carry, carry_tree = flatten_arrays(init, "the first carry of scan")
    rows, xs_tree = flatten_arrays(xs, f"the xs of {loop.site.kind}")
    count = _length(rows, xs, length, loop.site.kind)
    if config.exploration.get() is not None:
        carry, xs = carry_tree.unflatten(carry), xs_tree.unflatten(rows)
        return _scan_explored(f, carry, xs, count, reverse, owner, loop)
    if config.disable_jit.value:
        return _scan_in_python(f, carry, carry_tree, rows, xs_tree, count, reverse)
    treedef = operations.treedef_tuple([carry_tree, xs_tree])
    x_avals = [x.aval.update(shape=x.shape[1:]) for x in rows]
    while True:
        body = trace_body(f, treedef, [*(c.aval for c in carry), *x_avals], what, owner)
        parts = _pair(body.structure, what)
        n = parts[0].num_leaves
        new = promoted(carry, body.out_avals[:n]) if parts[0] == carry_tree else None
        if new is None:
            break
        carry = new
    ins = [c.aval for c in carry]
    carry_error(what, init, carry_tree, parts[0], ins, body.out_avals[:n])
    unrolled = count if unroll is True else max(1, integer(unroll, "unroll"))
    prim = Scan(
        body.jaxpr, len(body.consts), n, count, bool(reverse), unrolled, BACKEND,
        site=loop.site, progress=loop.progress,
    )  # fmt: skip
    outs = prim(*body.consts, *carry, *rows)
    last = operations.tree_unflatten(carry_tree, outs[:n])
    return last, operations.tree_unflatten(parts[1], outs[n:])


def _scan_explored(
    f: Callable, init: Tree, xs: Tree, count: int, reverse: bool, owner: Callable, loop: _Loop
) -> tuple[Tree, Tree]:
    def compiled(carry: Tree, rows: Tree, length: int) -> tuple[Tree, Tree]:
        return _scan(f, carry, rows, length, reverse, 1, f, loop)

    from fnx.control_flow import explored

    return explored.scan(f, init, xs, count, reverse, loop.site, name_of(owner), compiled)


def _pair(structure: Any, what: str) -> tuple[Any, Any]:
    parts = operations.treedef_children(structure)
    if structure.type is not tuple or len(parts) != 2:
        raise TypeMismatch(
            f"{what} returned {operations.shown(structure)}; expected a pair: the next carry, and what is "
            "stacked (None if nothing is)"
        )
    return parts[0], parts[1]


def _length(rows: Sequence[Array], xs: Tree, length: int | None, kind: str) -> int:
    paths = [operations.keystr(p) for p, _ in operations.tree_leaves_with_path(xs)]
    for path, x in zip(paths, rows):
        if not x.shape:
            raise ShapeError(
                f"{kind} over xs{path}, which has rank 0; expected a leading axis to go over. Close over "
                "values that are the same in all iterations."
            )
    found = {x.shape[0] for x in rows}
    if length is not None:
        found.add(integer(length, "length of scan"))
    if len(found) > 1:
        each = ", ".join(f"xs{path} has {x.shape[0]}" for path, x in zip(paths, rows))
        given = "" if length is None else f"; length={length} was given"
        raise ShapeError(
            f"{kind} over different lengths: {each}{given}. Expected equal leading axes."
        )
    if not found:
        raise InvalidValue("scan without xs needs to know how often to run: pass length")
    return found.pop()


def _row(x: Array, t: int) -> Array:
    shape = x.shape
    one = Slice((t, *(0,) * (len(shape) - 1)), (t + 1, *shape[1:]))(x)
    return Reshape(shape[1:])(one)


def _scan_in_python(
    f: Callable, carry: list, carry_tree: Any, rows: list, xs_tree: Any, count: int, reverse: bool
) -> tuple[Tree, Tree]:
    state, ys = operations.tree_unflatten(carry_tree, carry), []
    for t in reversed(range(count)) if reverse else range(count):
        state, y = f(state, operations.tree_unflatten(xs_tree, [_row(x, t) for x in rows]))
        ys.append(y)
    if not ys:
        raise InvalidValue(
            "scan of length 0 with disable_jit: the types of its results are unknown"
        )
    ys = ys[::-1] if reverse else ys
    return state, operations.tree_map(lambda *leaves: _stack(leaves), *ys)


def _stack(leaves: Sequence[Any]) -> Array:
    arrays = [as_array(x) for x in leaves]
    return _joined([Reshape((1, *x.shape))(x) for x in arrays])


def _joined(arrays: Sequence[Array]) -> Array:
    return Concatenate(0)(*arrays) if len(arrays) > 1 else arrays[0]


@entrance
def map(f: Callable, xs: Tree, *, batch_size: int | None = None, progress: bool = False) -> Tree:
    """`f` of each row of `xs`, one after the other; the stacked results.

    With `batch_size`, so many rows at once by vmap; 0 means one after the other. `progress` as in `scan`.

    >>> lax.map(lambda x: x * x, np.arange(3.0))
    Array([0., 1., 4.], dtype=float64)
    """
    if not callable(f):
        raise TypeMismatch(f"map needs a function, got {type(f).__name__}: {brief(f, 80)}")
    if batch_size is not None and integer(batch_size, "batch_size of map") < 0:
        raise InvalidValue(f"map with batch_size={batch_size}; expected at least 0")
    if not batch_size:
        body = lambda _, x: (None, f(x))
        site = LoopSite("map", user_source())
        loop = _Loop(f"the body {name_of(f)} of map", site, _shown(progress))
        return _scan(body, None, xs, None, False, 1, body, loop)[1]
    rows, treedef = flatten_arrays(xs, "the xs of map")
    count = _length(rows, xs, None, "map")
    whole = count // batch_size * batch_size
    parts = []
    if whole:
        groups = [
            Reshape((whole // batch_size, batch_size, *x.shape[1:]))(_rows(x, 0, whole))
            for x in rows
        ]
        ys = map(vmap(f), operations.tree_unflatten(treedef, groups), progress=progress)
        parts.append(operations.tree_map(lambda y: Reshape((whole, *y.shape[2:]))(y), ys))
    if whole < count or not count:
        rest = operations.tree_unflatten(treedef, [_rows(x, whole, count) for x in rows])
        parts.append(vmap(f)(rest) if count else map(f, xs))
    return operations.tree_map(lambda *ys: _joined(ys), *parts)


def _rows(x: Array, start: int, stop: int) -> Array:
    return Slice((start, *(0,) * (x.ndim - 1)), (stop, *x.shape[1:]))(x)


# --- while and for -----------------------------------------------------------------------------


@entrance
def while_loop(
    cond_fun: Callable, body_fun: Callable, init_val: Tree, *, progress: bool = False
) -> Tree:
    """`val = body_fun(val)` while `cond_fun(val)`; the last val, whose types stay the same.

    In reverse mode blocks of iterations are run again from checkpoints, in memory that does not grow with
    their number. `progress` as in `scan`.
    TypeError for a condition that is not a scalar bool, or a val of other types.

    >>> lax.while_loop(lambda v: v < 100, lambda v: v * 2, 3)
    Array(192, dtype=int64, weak_type=True)
    """
    site = LoopSite("while_loop", user_source())
    return _while(cond_fun, body_fun, init_val, site, _shown(progress))


def _while(
    cond_fun: Callable, body_fun: Callable, init_val: Tree, site: LoopSite, progress: bool
) -> Tree:
    try:
        return _plain_while(cond_fun, body_fun, init_val, site, progress)
    except CapturedRefs as found:
        refs = found.refs
    test, body = carrying(cond_fun, refs), carrying(body_fun, refs)
    state = [r.value for r in refs], init_val
    values, last = _while(lambda s: test(*s)[1], lambda s: body(*s), state, site, progress)
    write(refs, values)
    return last


def _plain_while(
    cond_fun: Callable, body_fun: Callable, init_val: Tree, site: LoopSite, progress: bool
) -> Tree:
    carry, treedef = flatten_arrays(init_val, "the first value of while_loop")
    if config.exploration.get() is not None:
        from fnx.control_flow import explored

        val = treedef.unflatten(carry)
        run = lambda test, body, val: _while(test, body, val, site, progress)
        return explored.while_loop(cond_fun, body_fun, val, site, run)
    if config.disable_jit.value:
        val = operations.tree_unflatten(treedef, carry)
        try:
            while cond_fun(val):
                val = body_fun(val)
            return val
        except ConcretizationTypeError:
            pass  # lanes of a vmap, or tracing: Python cannot decide
    one = operations.treedef_tuple([treedef])
    what = f"the body {name_of(body_fun)} of while_loop"
    while True:
        body = trace_body(body_fun, one, [c.aval for c in carry], what)
        new = promoted(carry, body.out_avals) if body.structure == treedef else None
        if new is None:
            break
        carry = new
    ins = [c.aval for c in carry]
    carry_error(what, init_val, treedef, body.structure, ins, body.out_avals)
    test = trace_body(cond_fun, one, ins, f"the condition {name_of(cond_fun)} of while_loop")
    if [a.strong() for a in test.out_avals] != [_BOOL]:
        raise TypeMismatch(
            f"the condition {name_of(cond_fun)} of while_loop returned "
            f"{[a.str_short() for a in test.out_avals]}; expected one bool of rank 0. Compare, or reduce "
            "with jnp.all or jnp.any."
        )
    jaxprs = test.jaxpr, len(test.consts), body.jaxpr, len(body.consts)
    prim = While(*jaxprs, BACKEND, site=site, progress=progress)
    outs = prim(*test.consts, *body.consts, *carry)
    return operations.tree_unflatten(treedef, outs)


_BOOL = ShapedArray((), dtypes.bool_)


def _type_of_bounds(low: Array, high: Array) -> tuple[Any, bool]:
    """The dtype of the counter, and whether it is weak; TypeError for other bounds than numbers."""
    real = all(dtypes.is_float(x.dtype) for x in (low, high))
    for x, name in ((low, "lower"), (high, "upper")):
        if x.shape != () or not (real or dtypes.is_integer(x.dtype)):
            raise TypeMismatch(
                f"fori_loop with {name} of type {x.aval.str_short()}; expected an integer of rank 0"
            )
    return dtypes.promote(((low.dtype, low.aval.weak_type), (high.dtype, high.aval.weak_type)))


@entrance
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable, init_val: Tree, *, unroll: int | bool | None = None,
    progress: bool = False,
) -> Tree:  # fmt: skip
    """`val = body_fun(i, val)` for i from `lower` to `upper - 1`; the last val.

    With bounds that are known when it is traced (Python integers) it is a `scan`, otherwise a
    `while_loop`, whose gradient takes about as long as that of the scan. Both bounds may be floats.
    `progress` as in `scan`.

    TypeError for bounds that are not scalar integers; ValueError for `unroll` with bounds that
    are not known.

    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int64, weak_type=True)
    """
    low, high = as_array(lower), as_array(upper)
    dtype, weak = _type_of_bounds(low, high)
    site, progress = LoopSite("fori_loop", user_source()), _shown(progress)
    known = type(low) is ConcreteArray and type(high) is ConcreteArray
    if known:
        start, stop = low._value.item(), high._value.item()
        count = builtins.max(0, math.ceil(stop - start))
        if config.disable_jit.value and config.exploration.get() is None:
            # Also within what is traced, where sums would be traced.
            for k in range(count):
                i = as_array(start + k) if weak else scalar(start + k, dtype)
                init_val = body_fun(i, init_val)
            return init_val
        bounds = "Python integers" if weak else dtypes.NAME[dtype]
        what = f"the body {name_of(body_fun)} of fori_loop over {bounds}"
        loop = _Loop(what, site, progress)

        def index(i: Array) -> Array:
            return ConvertElementType(dtype, True)(i) if weak else i

        def counted(val: Tree, i: Array) -> tuple[Tree, None]:
            return body_fun(index(i), val), None

        def counting(state: tuple, _: None) -> tuple[tuple, None]:
            i, val = state
            return (add(i, scalar(1, dtype)), body_fun(index(i), val)), None

        first = scalar(start, dtype)
        if count > MANY_ITERATIONS and evaluates_known_values():
            state = first, init_val
            return _scan(counting, state, None, count, False, unroll or 1, body_fun, loop)[0][1]
        steps = Iota(0, dtype, (count,))()
        steps = add(steps, first) if start else steps
        return _scan(counted, init_val, steps, count, False, unroll or 1, body_fun, loop)[0]
    if unroll is not None:
        raise InvalidValue("fori_loop with unroll needs bounds that are Python integers")
    low, high = convert(low, dtype), convert(high, dtype)
    one = scalar(1, dtype)
    step = lambda v: (add(v[0], one), v[1], body_fun(v[0], v[2]))
    goes_on = lambda v: lt(v[0], v[1])
    _, _, out = _while(goes_on, step, (low, high, init_val), site, progress)
    return out
