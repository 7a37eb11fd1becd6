"""Loops and branches for users: scan, while_loop, fori_loop, cond, switch, map, associative_scan."""

import builtins
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from fnx import tree_util
from fnx.api import flatten_arrays, name_of, vmap
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
from fnx.core.interpreter import Tracer, current, evaluate
from fnx.core.jaxpr import Jaxpr, Var, eval_jaxpr
from fnx.interpreters.collectives import bound_axes
from fnx.interpreters.control import Cond, While
from fnx.interpreters.scan import Scan
from fnx.interpreters.trace import CapturedRefs, trace
from fnx.jit import BACKEND
from fnx.ops.basic import convert, scalar
from fnx.ops.convert import ConvertElementType
from fnx.ops.elementwise import add
from fnx.ops.join import Concatenate, Iota
from fnx.ops.permute import Reshape, Rev
from fnx.ops.select import lt, ne
from fnx.ops.slice import Slice
from fnx.refs import carrying, write

__all__ = [
    "associative_scan",
    "cond",
    "fori_loop",
    "map",
    "scan",
    "switch",
    "while_loop",
]

Tree = Any

# --- tracing of bodies --------------------------------------------------------------------------


class _Traced:
    """A function of pytrees as a jaxpr: the arrays that it closed over, and its result's structure."""

    def __init__(self, jaxpr: Jaxpr, consts: list[Array], structure: Any):
        self.jaxpr, self.consts, self.structure = jaxpr, consts, structure

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return self.jaxpr.out_avals


# A cache: a function that is used again, on the same types and with the same surroundings (the
# values of its globals and of what it closed over), is not traced again.
_traced: "weakref.WeakKeyDictionary[Callable, dict]" = weakref.WeakKeyDictionary()


def _surroundings(fun: FunctionType) -> list:
    """The objects that a function's free names stand for now, but for itself."""
    found = [fun.__globals__.get(n) for n in fun.__code__.co_names]
    for cell in fun.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            found.append(None)
    return [None if x is fun else x for x in found]


def _same(a: list, b: list) -> bool:
    return len(a) == len(b) and builtins.all(x is y for x, y in zip(a, b))


def _trace(
    fun: Callable,
    treedef: Any,
    avals: Sequence[ShapedArray],
    what: str,
    owner: Callable | None = None,
) -> _Traced:
    """The jaxpr of a function, which `owner` (the user's function in it) remembers."""
    owner = owner or fun
    key = (treedef, tuple(avals), what, config.of_traces(), *bound_axes().items())
    plain = type(owner) is FunctionType
    around = _surroundings(owner) if plain else []
    known = _traced.setdefault(owner, {}) if plain else {}
    if key in known and _same(known[key][0], around):
        return known[key][1]
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        result = fun(*tree_util.tree_unflatten(treedef, xs))
        arrays, structure = flatten_arrays(result, f"results of {name_of(fun)}, {what},")
        structures.append(structure)
        return arrays

    jaxpr, consts = trace(flat, avals, what=what, name=name_of(fun))
    made = _Traced(jaxpr, consts, structures[0])
    if not any(isinstance(c, Tracer) for c in consts):
        known[key] = around, made
    return made


def _promoted(init: list[Array], outs: Sequence[ShapedArray]) -> list[Array] | None:
    """First carries whose weak types gave way to those of the carries that follow, if any did."""
    new = [
        ConvertElementType(o.dtype, o.weak_type)(x)
        if x.aval.weak_type and x.shape == o.shape and (x.dtype, True) != (o.dtype, o.weak_type)
        else x
        for x, o in zip(init, outs)
    ]
    return new if any(a is not b for a, b in zip(new, init)) else None


def _carry_error(
    what: str, init: Tree, treedef: Any, out: Any, ins: Sequence, outs: Sequence
) -> None:
    """Raise unless structure and types of the carry that a body returns are those that it got."""
    if treedef != out:
        found = tree_util.tree_unflatten(out, [0] * out.num_leaves)
        raise TypeMismatch(
            f"{what} got a carry of structure {treedef} and returned one of structure {out}"
            f"{tree_util.describe_difference(init, found)}. Expected the same structure: return all parts "
            "of the carry, updated or not, in the same containers."
        )
    paths = [tree_util.keystr(p) for p, _ in tree_util.tree_leaves_with_path(init)]
    bad = [
        f"carry{path} is {o.str_short()} but was {i.str_short()}"
        for path, i, o in zip(paths, ins, outs)
        if not i.like(o)
    ]
    if bad:
        raise TypeMismatch(
            f"{what} returned a carry of other types than it got: {'; '.join(bad)}. Expected equal "
            "shapes and dtypes: make the first carry what the body returns, for example with "
            "jnp.zeros(shape, dtype), or convert in the body with .astype."
        )


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
) -> tuple[Tree, Tree]:
    """Loop over the leading axis of `xs`: `carry, y = f(carry, x)`; the last carry, the stacked ys.

    `init` is the first carry, a pytree whose shapes and dtypes stay the same. With `xs` None, `f` runs
    `length` times on x=None. `reverse` starts from the last row. Gradients keep what is cheapest to
    keep and compute the rest again. TypeError for carries of other types or structure, ValueError for
    xs of different lengths.

    >>> scan(lambda total, x: (total + x, total), 0.0, np.arange(3.0))
    (Array(3., dtype=float64), Array([0., 0., 1.], dtype=float64))
    """
    del _split_transpose
    if not isinstance(unroll, Tracer) and int(unroll) < 0:
        raise InvalidValue(f"scan with unroll={unroll}; expected a bool or a number of rounds")
    if not callable(f):
        raise TypeMismatch(f"scan needs a function, got {type(f).__name__}: {f!r:.80}")
    what = f"the body {name_of(f)} of scan"
    return _scan(f, init, xs, length, reverse, unroll, f, what)


def _scan(
    f: Callable, init: Tree, xs: Tree, length: int | None, reverse: bool, unroll: int | bool,
    owner: Callable, what: str,
) -> tuple[Tree, Tree]:  # fmt: skip
    try:
        return _plain_scan(f, init, xs, length, reverse, unroll, owner, what)
    except CapturedRefs as found:
        refs = found.refs
    carried = carrying(f, refs)

    def step(state: tuple, x: Tree) -> tuple[tuple, Tree]:
        values, (carry, y) = carried(state[0], state[1], x)
        return (values, carry), y

    state = [r.value for r in refs], init
    (values, last), ys = _scan(step, state, xs, length, reverse, unroll, step, what)
    write(refs, values)
    return last, ys


def _plain_scan(
    f: Callable, init: Tree, xs: Tree, length: int | None, reverse: bool, unroll: int | bool,
    owner: Callable, what: str,
) -> tuple[Tree, Tree]:  # fmt: skip
    carry, carry_tree = flatten_arrays(init, "the first carry of scan")
    rows, xs_tree = flatten_arrays(xs, "the xs of scan")
    count = _length(rows, xs, length)
    if config.disable_jit.value:
        return _scan_in_python(f, carry, carry_tree, rows, xs_tree, count, reverse)
    treedef = tree_util.treedef_tuple([carry_tree, xs_tree])
    x_avals = [x.aval.update(shape=x.shape[1:]) for x in rows]
    while True:
        body = _trace(f, treedef, [*(c.aval for c in carry), *x_avals], what, owner)
        parts = _pair(body.structure, what)
        n = parts[0].num_leaves
        new = _promoted(carry, body.out_avals[:n]) if parts[0] == carry_tree else None
        if new is None:
            break
        carry = new
    ins = [c.aval for c in carry]
    _carry_error(what, init, carry_tree, parts[0], ins, body.out_avals[:n])
    rounds = count if unroll is True else max(1, int(unroll))
    prim = Scan(body.jaxpr, len(body.consts), n, count, bool(reverse), rounds, BACKEND)
    outs = prim(*body.consts, *carry, *rows)
    last = tree_util.tree_unflatten(carry_tree, outs[:n])
    return last, tree_util.tree_unflatten(parts[1], outs[n:])


def _pair(structure: Any, what: str) -> tuple[Any, Any]:
    parts = tree_util.treedef_children(structure)
    if structure.type is not tuple or len(parts) != 2:
        raise TypeMismatch(
            f"{what} returned {structure}; expected a pair: the next carry, and what is stacked (None "
            "if nothing is)"
        )
    return parts[0], parts[1]


def _length(rows: Sequence[Array], xs: Tree, length: int | None) -> int:
    paths = [tree_util.keystr(p) for p, _ in tree_util.tree_leaves_with_path(xs)]
    for path, x in zip(paths, rows):
        if not x.shape:
            raise ShapeError(
                f"scan over xs{path}, which has rank 0; expected a leading axis to scan over. Close over "
                "values that are the same in all rounds."
            )
    found = {x.shape[0] for x in rows}
    if length is not None:
        found.add(int(length))
    if len(found) > 1:
        each = ", ".join(f"xs{path} has {x.shape[0]}" for path, x in zip(paths, rows))
        given = "" if length is None else f"; length={length} was given"
        raise ShapeError(
            f"scan over different lengths: {each}{given}. Expected equal leading axes."
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
    state, ys = tree_util.tree_unflatten(carry_tree, carry), []
    for t in reversed(range(count)) if reverse else range(count):
        state, y = f(state, tree_util.tree_unflatten(xs_tree, [_row(x, t) for x in rows]))
        ys.append(y)
    if not ys:
        raise InvalidValue(
            "scan of length 0 with disable_jit: the types of its results are unknown"
        )
    ys = ys[::-1] if reverse else ys
    return state, tree_util.tree_map(lambda *leaves: _stack(leaves), *ys)


def _stack(leaves: Sequence[Any]) -> Array:
    arrays = [as_array(x) for x in leaves]
    return _concatenate([Reshape((1, *x.shape))(x) for x in arrays], 0)


def _concatenate(arrays: Sequence[Array], axis: int) -> Array:
    return Concatenate(axis)(*arrays) if len(arrays) > 1 else arrays[0]


@entrance
def map(f: Callable, xs: Tree, *, batch_size: int | None = None) -> Tree:
    """`f` of each row of `xs`, one after the other; the stacked results.

    With `batch_size`, so many rows at once by vmap; 0 means one after the other.

    >>> map(lambda x: x * x, np.arange(3.0))
    Array([0., 1., 4.], dtype=float64)
    """
    if not batch_size:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    rows, treedef = flatten_arrays(xs, "the xs of map")
    count = _length(rows, xs, None)
    whole = count // batch_size * batch_size
    parts = []
    if whole:
        groups = [
            Reshape((whole // batch_size, batch_size, *x.shape[1:]))(_rows(x, 0, whole))
            for x in rows
        ]
        ys = map(vmap(f), tree_util.tree_unflatten(treedef, groups))
        parts.append(tree_util.tree_map(lambda y: Reshape((whole, *y.shape[2:]))(y), ys))
    if whole < count or not count:
        rest = tree_util.tree_unflatten(treedef, [_rows(x, whole, count) for x in rows])
        parts.append(vmap(f)(rest) if count else map(f, xs))
    return tree_util.tree_map(lambda *ys: _concatenate(ys, 0), *parts)


def _rows(x: Array, start: int, stop: int) -> Array:
    return Slice((start, *(0,) * (x.ndim - 1)), (stop, *x.shape[1:]))(x)


# --- while and for -----------------------------------------------------------------------------


@entrance
def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Tree) -> Tree:
    """`val = body_fun(val)` while `cond_fun(val)`; the last val, whose types stay the same.

    In reverse mode rounds are run again from checkpoints, in memory that does not grow with their
    number; where that is known, `fori_loop` and `scan` are quicker.
    TypeError for a condition that is not a scalar bool, or a val of other types.

    >>> while_loop(lambda v: v < 100, lambda v: v * 2, 3)
    Array(192, dtype=int64, weak_type=True)
    """
    try:
        return _plain_while(cond_fun, body_fun, init_val)
    except CapturedRefs as found:
        refs = found.refs
    test, body = carrying(cond_fun, refs), carrying(body_fun, refs)
    state = [r.value for r in refs], init_val
    values, last = while_loop(lambda s: test(*s)[1], lambda s: body(*s), state)
    write(refs, values)
    return last


def _plain_while(cond_fun: Callable, body_fun: Callable, init_val: Tree) -> Tree:
    carry, treedef = flatten_arrays(init_val, "the first value of while_loop")
    if config.disable_jit.value:
        val = tree_util.tree_unflatten(treedef, carry)
        try:
            while cond_fun(val):
                val = body_fun(val)
            return val
        except ConcretizationTypeError:
            pass  # lanes of a vmap, or tracing: Python cannot decide
    one = tree_util.treedef_tuple([treedef])
    what = f"the body {name_of(body_fun)} of while_loop"
    while True:
        body = _trace(body_fun, one, [c.aval for c in carry], what)
        new = _promoted(carry, body.out_avals) if body.structure == treedef else None
        if new is None:
            break
        carry = new
    ins = [c.aval for c in carry]
    _carry_error(what, init_val, treedef, body.structure, ins, body.out_avals)
    test = _trace(cond_fun, one, ins, f"the condition {name_of(cond_fun)} of while_loop")
    if test.jaxpr.out_avals != (_BOOL,):
        raise TypeMismatch(
            f"the condition {name_of(cond_fun)} of while_loop returned "
            f"{[a.str_short() for a in test.out_avals]}; expected one bool of rank 0. Compare, or reduce "
            "with jnp.all or jnp.any."
        )
    prim = While(test.jaxpr, len(test.consts), body.jaxpr, len(body.consts), BACKEND)
    outs = prim(*test.consts, *body.consts, *carry)
    return tree_util.tree_unflatten(treedef, outs)


_BOOL = ShapedArray((), dtypes.bool_)
_MANY_ROUNDS = 10**5  # outside a trace an array with the number of each round would be made


@entrance
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable, init_val: Tree, *, unroll: int | bool | None = None
) -> Tree:
    """`val = body_fun(i, val)` for i from `lower` to `upper - 1`; the last val.

    With bounds that are known when it is traced (Python integers) it is a `scan`, otherwise a
    `while_loop`.

    >>> fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int64, weak_type=True)
    """
    low, high = as_array(lower), as_array(upper)
    for x, name in ((low, "lower"), (high, "upper")):
        if x.shape != () or not dtypes.is_integer(x.dtype):
            raise TypeMismatch(
                f"fori_loop with {name} of type {x.aval.str_short()}; expected an integer of rank 0"
            )
    dtype, weak = dtypes.promote(
        ((low.dtype, low.aval.weak_type), (high.dtype, high.aval.weak_type))
    )
    known = type(low) is ConcreteArray and type(high) is ConcreteArray
    if config.disable_jit.value and known:
        for i in range(int(low), int(high)):
            init_val = body_fun(as_array(i), init_val)
        return init_val
    if known:
        count = builtins.max(0, int(high) - int(low))
        bounds = "Python integers" if weak else dtypes.NAME[dtype]
        what = f"the body {name_of(body_fun)} of fori_loop over {bounds}"

        def index(i: Array) -> Array:
            return ConvertElementType(dtype, True)(i) if weak else i

        def counted(val: Tree, i: Array) -> tuple[Tree, None]:
            return body_fun(index(i), val), None

        def counting(state: tuple, _: None) -> tuple[tuple, None]:
            i, val = state
            return (add(i, scalar(1, dtype)), body_fun(index(i), val)), None

        first = scalar(int(low), dtype)
        if count > _MANY_ROUNDS and current.get() is evaluate:
            state = first, init_val
            return _scan(counting, state, None, count, False, unroll or 1, body_fun, what)[0][1]
        steps = Iota(0, dtype, (count,))()
        steps = add(steps, first) if int(low) else steps
        return _scan(counted, init_val, steps, count, False, unroll or 1, body_fun, what)[0]
    if unroll is not None:
        raise InvalidValue("fori_loop with unroll needs bounds that are Python integers")
    low, high = convert(low, dtype), convert(high, dtype)
    one = scalar(1, dtype)
    _, _, out = while_loop(
        lambda v: lt(v[0], v[1]),
        lambda v: (add(v[0], one), v[1], body_fun(v[0], v[2])),
        (low, high, init_val),
    )
    return out


# --- branches ----------------------------------------------------------------------------------


@entrance
def cond(
    pred: Any, true_fun: Callable, false_fun: Callable, *operands: Tree, **kwargs: Any
) -> Tree:
    """`true_fun(*operands)` if `pred`, else `false_fun(*operands)`; only one of them runs.

    Both are traced and must give equal types. Under vmap with a `pred` that differs between lanes both
    run. TypeError for a predicate that is not a scalar, and for branches of different types.

    >>> cond(3 > 2, lambda x: x + 1, lambda x: x - 1, 10.0)
    Array(11., dtype=float64, weak_type=True)
    """
    if "operand" in kwargs:
        operands = (*operands, kwargs.pop("operand"))
    kwargs.pop("linear", None)
    if kwargs:
        raise TypeMismatch(f"cond got unexpected arguments {', '.join(kwargs)}")
    if not callable(true_fun) and len(operands) == 2 and callable(operands[1]):
        # The old form: pred, true_operand, true_fun, false_operand, false_fun.
        true_operand, on_true, false_operand, on_false = true_fun, false_fun, *operands
        return cond(
            pred, lambda a, b: on_true(a), lambda a, b: on_false(b), true_operand, false_operand
        )
    if isinstance(pred, Callable):  # type: ignore[arg-type]
        raise TypeMismatch(
            "cond got a function as predicate; expected a bool of rank 0, then functions"
        )
    test = as_array(pred)
    if test.shape != ():
        raise TypeMismatch(
            f"cond by a predicate of type {test.aval.str_short()}; expected rank 0. Reduce it with jnp.all "
            "or jnp.any, choose element by element with jnp.where, or use vmap."
        )
    if dtypes.kind(test.dtype) not in "biuf":
        raise TypeMismatch(f"cond by a predicate of type {test.aval.str_short()}; expected a bool")
    if config.disable_jit.value and not isinstance(test, Tracer):
        return true_fun(*operands) if test else false_fun(*operands)
    if test.dtype != dtypes.bool_:
        test = ne(test, scalar(0, test.dtype))
    return _branch(convert(test, dtypes.int32), (false_fun, true_fun), operands, "cond")


@entrance
def switch(index: Any, branches: Sequence[Callable], *operands: Tree, operand: Any = None) -> Tree:
    """`branches[index](*operands)`, with the index clamped to the range.

    TypeError for an index that is not a scalar integer, and for branches of different types.

    >>> switch(1, [lambda x: x, lambda x: -x], 2.0)
    Array(-2., dtype=float64, weak_type=True)
    """
    if operand is not None:
        operands = (*operands, operand)
    where = as_array(index)
    if where.shape != () or not dtypes.is_integer(where.dtype):
        raise TypeMismatch(
            f"switch by an index of type {where.aval.str_short()}; expected an integer of rank 0"
        )
    branches = tuple(branches)
    if not branches:
        raise InvalidValue("switch between no branches; expected at least one")
    if not builtins.all(callable(b) for b in branches):
        raise TypeMismatch("switch between objects that are not functions")
    if len(branches) == 1 or (config.disable_jit.value and not isinstance(where, Tracer)):
        k = 0 if len(branches) == 1 else int(np.clip(int(where), 0, len(branches) - 1))
        return branches[k](*operands)
    if where.dtype != dtypes.int32:
        where = convert(where, dtypes.int32)
    return _branch(where, branches, operands, "switch")


def _branch(index: Array, funs: Sequence[Callable], operands: tuple, what: str) -> Tree:
    try:
        return _plain_branch(index, funs, operands, what)
    except CapturedRefs as found:
        refs = found.refs
    carried = [carrying(f, refs) for f in funs]
    values, out = _branch(index, carried, ([r.value for r in refs], *operands), what)
    write(refs, values)
    return out


def _plain_branch(index: Array, funs: Sequence[Callable], operands: tuple, what: str) -> Tree:
    arrays, treedef = flatten_arrays(operands, f"operands of {what}")
    avals = [x.aval for x in arrays]
    made = [_trace(f, treedef, avals, f"the branch {name_of(f)} of {what}") for f in funs]
    types = _branch_types(made, funs, what)
    jaxprs = [_converted(m.jaxpr, types) for m in made]
    if type(index) is ConcreteArray:
        k = min(max(int(index), 0), len(funs) - 1)
        outs: Sequence = eval_jaxpr(jaxprs[k], [*made[k].consts, *arrays])
    else:
        consts = {id(c): c for m in made for c in m.consts}
        branches = tuple([_with_consts(j, m, consts) for j, m in zip(jaxprs, made)])
        outs = Cond(branches, BACKEND)(index, *consts.values(), *arrays)
    return tree_util.tree_unflatten(made[0].structure, outs)


def _branch_types(made: Sequence[_Traced], funs: Sequence[Callable], what: str) -> list[np.dtype]:
    """The dtypes of the results, weak ones giving way; raises unless the branches agree."""
    pairs = list(zip(made, funs))
    if what == "cond":  # true first, as the user wrote them
        pairs.reverse()
    first, name = pairs[0][0], name_of(pairs[0][1])
    for m, f in pairs[1:]:
        names = f"{what}: the branches {name} and {name_of(f)}"
        if m.structure != first.structure:
            raise TypeMismatch(
                f"{names} return {first.structure} and {m.structure}; expected the same structure"
            )
        for a, b in zip(first.out_avals, m.out_avals):
            if a.shape != b.shape or (a.dtype != b.dtype and not (a.weak_type or b.weak_type)):
                raise TypeMismatch(
                    f"{names} return {a.str_short()} and {b.str_short()}; expected equal shapes and "
                    "dtypes. Convert with .astype or jnp.broadcast_to in one of them."
                )
    columns = zip(*[m.out_avals for m in made])  # one per result
    return [
        dtypes.promote(tuple([(a.dtype, a.weak_type) for a in column]))[0] for column in columns
    ]


def _converted(jaxpr: Jaxpr, types: Sequence[np.dtype]) -> Jaxpr:
    """The same results in other dtypes."""
    if builtins.all(a.dtype == t for a, t in zip(jaxpr.out_avals, types)):
        return jaxpr
    key = ("converted", tuple(types))
    if key not in jaxpr.memo:

        def run(*xs: Array) -> list[Array]:
            return [convert(y, t) for y, t in zip(eval_jaxpr(jaxpr, xs), types)]

        jaxpr.memo[key] = trace(run, jaxpr.in_avals, name=jaxpr.name)[0]
    return jaxpr.memo[key]


def _with_consts(jaxpr: Jaxpr, made: _Traced, consts: dict[int, Array]) -> Jaxpr:
    """With all branches' constants as inputs."""
    n = len(made.consts)
    own = dict(zip([id(c) for c in made.consts], jaxpr.inputs[:n]))
    if list(own) == list(consts):
        return jaxpr
    heads = [own.get(k) or Var(c.aval) for k, c in consts.items()]
    return Jaxpr([*heads, *jaxpr.inputs[n:]], jaxpr.eqns, jaxpr.outs, len(heads), jaxpr.name)


# --- associative scan --------------------------------------------------------------------------


def associative_scan(fn: Callable, elems: Tree, reverse: bool = False, axis: int = 0) -> Tree:
    """All partial results of an associative function along an axis, in a number of steps that
    grows with the logarithm of its length.

    `fn(a, b)` works on pytrees like `elems`, on any number of rows at once. The recursion combines
    neighbours, scans these, and fills in every other element (G. E. Blelloch, "Prefix sums and their
    applications", 1990).

    >>> associative_scan(lambda a, b: a + b, np.arange(4.0))
    Array([0., 1., 3., 6.], dtype=float64)
    """
    if not callable(fn):
        raise TypeMismatch(f"associative_scan needs a function, got {type(fn).__name__}")
    arrays, treedef = flatten_arrays(elems, "elements of associative_scan")
    if not arrays:
        return elems
    axis = axis + arrays[0].ndim if axis < 0 else axis
    sizes = {x.shape[axis] for x in arrays}
    if len(sizes) > 1:
        raise ShapeError(f"associative_scan over axes of different lengths: {sorted(sizes)}")
    flip = Rev((axis,))

    def combine(a: list, b: list) -> list:
        x, y = (tree_util.tree_unflatten(treedef, v) for v in (a, b))
        leaves, structure = flatten_arrays(fn(x, y), "results")
        if structure != treedef:
            raise TypeMismatch(
                f"the function of associative_scan returned {structure}; expected {treedef}"
            )
        return leaves

    def part(arrays: list, start: int, stop: int, step: int = 1) -> list:
        outs = []
        for x in arrays:
            low, high, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
            low[axis], high[axis], stride[axis] = start, stop, step
            outs.append(Slice(tuple(low), tuple(high), tuple(stride))(x))
        return outs

    def run(arrays: list) -> list:
        n = arrays[0].shape[axis]
        if n < 2:
            return arrays
        odd = run(combine(part(arrays, 0, n - 1, 2), part(arrays, 1, n, 2)))
        even = part(arrays, 0, 1)
        if n > 2:
            before = part(odd, 0, (n - 1) // 2)
            rest = combine(before, part(arrays, 2, n, 2))
            even = [Concatenate(axis)(a, b) for a, b in zip(even, rest)]
        return [_interleave(a, b, axis) for a, b in zip(even, odd)]

    arrays = [flip(x) for x in arrays] if reverse else arrays
    outs = run(list(arrays))
    outs = [flip(x) for x in outs] if reverse else outs
    return tree_util.tree_unflatten(treedef, outs)


def _interleave(a: Array, b: Array, axis: int) -> Array:
    """a0 b0 a1 b1 ..., where `a` may have one element more."""
    n, m = a.shape[axis], b.shape[axis]
    front, back = a.shape[:axis], a.shape[axis + 1 :]
    low, high = (0,) * a.ndim, (*front, m, *back)
    pairs = [Reshape((*front, m, 1, *back))(x) for x in (Slice(low, high)(a), b)]
    woven = Reshape((*front, 2 * m, *back))(Concatenate(axis + 1)(*pairs))
    if n == m:
        return woven
    start = (*(0,) * axis, m, *(0,) * len(back))
    return Concatenate(axis)(woven, Slice(start, a.shape)(a))
