"""The transformations that users call: flatten pytrees, check arguments, call the interpreters."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from fnx import tree_util
from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array, is_array_like
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.interpreter import current
from fnx.core.jaxpr import ClosedJaxpr
from fnx.interpreters import batching
from fnx.interpreters import jvp as jvp_
from fnx.interpreters import linearize as linearize_
from fnx.interpreters.trace import trace
from fnx.ops.basic import convert, zeros


class ShapeDtypeStruct:
    """A shape and a dtype that stand for an array where only those are needed.

    >>> ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, **_):
        self.shape = tuple(shape)
        self.dtype = dtypes.canonical(dtype)
        self.weak_type = weak_type
        self.sharding = sharding

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=int)))

    def __len__(self) -> int:
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (
            other.shape,
            other.dtype,
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={dtypes.NAME[self.dtype]})"


# --- helpers ------------------------------------------------------------------------------------------


def name_of(fun: Callable) -> str:
    return getattr(fun, "__name__", None) or type(fun).__name__


def aval_like(x: Any) -> ShapedArray:
    """The aval of an array, or of anything with a shape and a dtype."""
    if isinstance(x, Array):
        return x.aval
    if is_array_like(x):
        return as_array(x).aval
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        weak = getattr(x, "weak_type", False)
        return ShapedArray(tuple(x.shape), dtypes.canonical(x.dtype), weak)
    return as_array(x).aval  # raises


def flatten_arrays(tree: Any, what: str) -> tuple[list[Array], Any]:
    """The leaves of a pytree as arrays, and its structure."""
    leaves, treedef = tree_util.tree_flatten(tree)
    out = []
    for leaf in leaves:
        if not is_array_like(leaf):
            raise TypeMismatch(
                f"{what} must be arrays, numbers, or pytrees of them; got a leaf of type "
                f"{type(leaf).__name__}: {leaf!r:.80}. Close over other objects, or mark them static."
            )
        out.append(as_array(leaf))
    return out, treedef


def flat_function(fun: Callable, treedef: Any, out: list) -> Callable:
    """`fun(*args)` as a function of leaves to leaves; the structure of the result goes into `out`."""

    def flat(*leaves: Array) -> list[Array]:
        result = fun(*tree_util.tree_unflatten(treedef, leaves))
        arrays, structure = flatten_arrays(result, f"results of {name_of(fun)}")
        out.append(structure)
        return arrays

    return flat


def canonical_argnums(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    found = []
    for k in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(k, (int, np.integer)):
            raise TypeMismatch(f"{what}: argnums must be integers, got {k!r}")
        if not -count <= k < count:
            raise InvalidValue(
                f"{what}: argnums={k} names an argument that is not there: the function was called "
                f"with {count} positional arguments. Pass by position what is differentiated."
            )
        found.append(int(k) % count)
    return tuple(found)


def split_args(fun: Callable, argnums: Any, args: tuple, kwargs: dict, what: str) -> tuple:
    """A function of the chosen arguments alone, and those arguments."""
    numbers = canonical_argnums(argnums, len(args), what)

    def chosen(*picked: Any) -> Any:
        full = list(args)
        for k, x in zip(numbers, picked, strict=True):
            full[k] = x
        return fun(*full, **kwargs)

    chosen.__name__ = name_of(fun)
    return chosen, tuple(args[k] for k in numbers)


class _Aux:
    """Splits (result, aux) and keeps aux, which is not differentiated."""

    def __init__(self, fun: Callable, has_aux: bool):
        self.fun, self.has_aux, self.value = fun, has_aux, None
        self.__name__ = name_of(fun)

    def __call__(self, *args: Any) -> Any:
        out = self.fun(*args)
        if not self.has_aux:
            return out
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise TypeMismatch(
                f"has_aux=True: {self.__name__} must return a pair (result, aux), got "
                f"{type(out).__name__}"
            )
        self.value = out[1]
        return out[0]


def _lowered_aux(aux: Any, me: Any) -> Any:
    """Aux values, with the tracers of an ended transformation replaced by their primals."""

    def lower(x: Any) -> Any:
        while isinstance(x, jvp_.JVPTracer) and x.owner.ended:
            x = x.primal
        return x

    del me
    return tree_util.tree_map(lower, aux)


# --- reverse mode -----------------------------------------------------------------------------------------


def _check_differentiable(leaves: list[Array], what: str, holomorphic: bool, allow_int: bool) -> None:
    for x in leaves:
        kind = dtypes.kind(x.dtype)
        if kind in "biu" and not allow_int:
            raise TypeMismatch(
                f"{what} needs inputs of a floating dtype, got {dtypes.NAME[x.dtype]}{list(x.shape)}. "
                "Integers have no derivatives: convert them (x.astype(float)), choose other argnums, "
                "or pass allow_int=True."
            )
        if kind == "c" and not holomorphic:
            raise TypeMismatch(
                f"{what} needs real inputs, got {dtypes.NAME[x.dtype]}{list(x.shape)}. For a "
                "holomorphic function pass holomorphic=True; otherwise use real and imaginary parts, "
                "or fnx.vjp."
            )
        if holomorphic and kind != "c":
            raise TypeMismatch(
                f"{what} with holomorphic=True needs complex inputs, got {dtypes.NAME[x.dtype]}"
            )


def _check_scalar(outs: list[Array], structure: Any, name: str, holomorphic: bool) -> None:
    if len(outs) != 1 or not tree_util.treedef_is_leaf(structure):
        raise TypeMismatch(
            f"grad needs a function with one scalar result, but {name} returned the pytree "
            f"{structure}. Return the loss alone, or pass has_aux=True and return (loss, aux)."
        )
    (y,) = outs
    if y.shape != ():
        raise TypeMismatch(
            f"grad needs a scalar result (shape ()), but {name} returned "
            f"{dtypes.NAME[y.dtype]}{list(y.shape)}. Sum or average it, or use fnx.jacrev, fnx.vjp."
        )
    if holomorphic:
        if dtypes.kind(y.dtype) != "c":
            raise TypeMismatch(f"holomorphic=True needs a complex result, got {dtypes.NAME[y.dtype]}")
    elif dtypes.kind(y.dtype) != "f":
        raise TypeMismatch(
            f"grad needs a real floating result, but {name} returned {dtypes.NAME[y.dtype]}. For "
            "complex results use fnx.vjp, or holomorphic=True."
        )


def value_and_grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence = (),
) -> Callable:
    """The function that gives `fun`'s value and its gradient with respect to `argnums`.

    `fun` returns a real scalar, or with `has_aux` a pair of it and anything else. The gradient has
    the structure, shapes and dtypes of the arguments. TypeError for integer arguments and for
    results that are not scalar.

    >>> value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float64, weak_type=True), Array(6., dtype=float64, weak_type=True))
    """
    del reduce_axes
    _check_callable(fun, "value_and_grad")

    @wraps(fun)
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        chosen, picked = split_args(fun, argnums, args, kwargs, "grad")
        aux = _Aux(chosen, has_aux)
        leaves, treedef = flatten_arrays(picked, "differentiated arguments of grad")
        _check_differentiable(leaves, "grad", holomorphic, allow_int)
        structures: list = []
        nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
        flat = flat_function(aux, treedef, structures)
        outs, tape = linearize_.linearize(flat, leaves, nonzero)
        _check_scalar(outs, structures[0], name_of(fun), holomorphic)
        one = ConcreteArray(np.ones((), outs[0].dtype))
        grads = [_gradient(g, x) for g, x in zip(tape.pull([one]), leaves, strict=True)]
        result = tree_util.tree_unflatten(treedef, grads)
        result = result[0] if isinstance(argnums, int) else result
        value = (outs[0], _lowered_aux(aux.value, None)) if has_aux else outs[0]
        return value, result

    return value_and_grad_f


def _gradient(g: Array | None, x: Array) -> Any:
    if not dtypes.is_inexact(x.dtype):
        return np.zeros(x.shape, dtypes.float0)
    return zeros(x.aval.strong()) if g is None else g


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence = (),
) -> Callable:
    """The gradient of a function with a scalar result; arguments as in `value_and_grad`.

    >>> grad(lambda x: x**3)(2.0)
    Array(12., dtype=float64)
    """
    _check_callable(fun, "grad")
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return grad_f


def _check_callable(fun: Any, what: str) -> None:
    if not callable(fun):
        raise TypeMismatch(f"{what} needs a function, got {type(fun).__name__}: {fun!r:.80}")


def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence = ()) -> Any:
    """The result of `fun(*primals)` and a function from its cotangent to those of `primals`.

    >>> y, pull = vjp(lambda a, b: a * b, 2.0, 5.0)
    >>> pull(1.0)
    (Array(5., dtype=float64), Array(2., dtype=float64))
    """
    del reduce_axes
    _check_callable(fun, "vjp")
    aux = _Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(primals, "arguments of vjp")
    structures: list = []
    nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
    outs, tape = linearize_.linearize(flat_function(aux, treedef, structures), leaves, nonzero, "vjp")
    pull = _Pull(tape, leaves, treedef, structures[0], [o.aval for o in outs])
    y = tree_util.tree_unflatten(structures[0], outs)
    return (y, pull, _lowered_aux(aux.value, None)) if has_aux else (y, pull)


class _Pull:
    """The function that `vjp` returns."""

    def __init__(self, tape: Any, leaves: list, treedef: Any, out: Any, avals: list[ShapedArray]):
        self.tape, self.treedef, self.out, self.avals = tape, treedef, out, avals
        self.inputs = leaves

    def __call__(self, ct: Any) -> Any:
        cts, structure = tree_util.tree_flatten(ct)
        if structure != self.out:
            raise TypeMismatch(
                f"the cotangent of a vjp has the structure {structure}; expected that of the "
                f"result, {self.out}"
            )
        cts = [
            _check_like(c, a, "the cotangent of a vjp") for c, a in zip(cts, self.avals, strict=True)
        ]
        pulled = self.tape.pull(cts)
        grads = [_gradient(g, x) for g, x in zip(pulled, self.inputs, strict=True)]
        return tree_util.tree_unflatten(self.treedef, grads)


def _check_like(x: Any, aval: ShapedArray, what: str) -> Array | None:
    """`x` as the tangent or cotangent of a value of type `aval`; None for those that have none."""
    if not dtypes.is_inexact(aval.dtype):
        return None  # float0, or zeros
    x = as_array(x)
    if x.shape != aval.shape:
        raise ShapeError(f"{what} has shape {x.shape}; expected {aval.shape}")
    if x.dtype != aval.dtype:
        if not x.aval.weak_type and dtypes.kind(x.dtype) != "i":
            raise TypeMismatch(
                f"{what} has dtype {dtypes.NAME[x.dtype]}; expected {dtypes.NAME[aval.dtype]}"
            )
        x = convert(x, aval.dtype)
    return x


# --- forward mode -------------------------------------------------------------------------------------------


def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)` and its derivative along `tangents`.

    >>> jvp(lambda x: x * x, (3.0,), (1.0,))[1]
    Array(6., dtype=float64, weak_type=True)
    """
    _check_callable(fun, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeMismatch(
            "jvp needs tuples of primals and tangents, one entry an argument; got "
            f"{type(primals).__name__} and {type(tangents).__name__}. Write (x,) for one argument."
        )
    aux = _Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(tuple(primals), "primals of jvp")
    tans, structure = tree_util.tree_flatten(tuple(tangents))
    if structure != treedef:
        raise TypeMismatch(f"primals and tangents differ in structure: {treedef} and {structure}")
    given = [
        _check_like(t, x.aval, "a tangent of jvp") for t, x in zip(tans, leaves, strict=True)
    ]
    structures: list = []
    outs, touts = jvp_.jvp(flat_function(aux, treedef, structures), leaves, given)
    filled = [_tangent(t, o) for t, o in zip(touts, outs, strict=True)]
    y, dy = (tree_util.tree_unflatten(structures[0], z) for z in (outs, filled))
    return (y, dy, _lowered_aux(aux.value, None)) if has_aux else (y, dy)


def _tangent(t: Array | None, primal: Array) -> Any:
    if not dtypes.is_inexact(primal.dtype):
        return np.zeros(primal.shape, dtypes.float0)
    return zeros(primal.aval.strong()) if t is None else t


def linearize(fun: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)` and the linear function that is its derivative there."""
    _check_callable(fun, "linearize")
    aux = _Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(primals, "arguments of linearize")
    structures: list = []
    nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
    flat = flat_function(aux, treedef, structures)
    outs, tape = linearize_.linearize(flat, leaves, nonzero, "linearize")
    y = tree_util.tree_unflatten(structures[0], outs)

    def push(*tangents: Any) -> Any:
        tans, structure = tree_util.tree_flatten(tangents)
        if structure != treedef:
            raise TypeMismatch(f"tangents have the structure {structure}; expected {treedef}")
        given = [
            _check_like(t, x.aval, "a tangent of a linearized function")
            for t, x in zip(tans, leaves, strict=True)
        ]
        touts = tape.push(given)
        filled = [_tangent(t, o) for t, o in zip(touts, outs, strict=True)]
        return tree_util.tree_unflatten(structures[0], filled)

    return (y, push, _lowered_aux(aux.value, None)) if has_aux else (y, push)


def linear_transpose(fun: Callable, *primals: Any, reduce_axes: Sequence = ()) -> Callable:
    """The transpose of a linear function; `primals` are arrays or ShapeDtypeStructs."""
    del reduce_axes
    leaves, treedef = tree_util.tree_flatten(primals)
    avals = [aval_like(x) for x in leaves]
    structures: list = []
    flat = flat_function(fun, treedef, structures)

    def apply_zeros(*xs: Array) -> list[Array]:
        return flat(*xs)

    jaxpr, consts = trace(apply_zeros, [a.strong() for a in avals], what="linear_transpose")

    def transposed(ct: Any) -> Any:
        from fnx.core.primitive import Undefined

        cts, _ = tree_util.tree_flatten(ct)
        given = [
            _check_like(c, a, "the cotangent of a linear_transpose")
            for c, a in zip(cts, jaxpr.out_avals, strict=True)
        ]
        args = [*consts, *(Undefined(a) for a in avals)]
        back = linearize_.backward_jaxpr(jaxpr, args, given)[len(consts) :]
        full = [zeros(a) if b is None else b for a, b in zip(avals, back, strict=True)]
        return tree_util.tree_unflatten(treedef, full)

    return transposed


# --- vmap -----------------------------------------------------------------------------------------------------


def flatten_axes(axes: Any, tree: Any, what: str) -> list[int | None]:
    """One axis (or None) a leaf of `tree`, from a pytree prefix of axes."""
    missing = object()
    marked = tree_util.tree_map(
        lambda a: missing if a is None else a, axes, is_leaf=lambda a: a is None
    )
    found: list = []

    def spread(axis: Any, part: Any) -> None:
        axis = None if axis is missing else axis
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise TypeMismatch(f"{what} must be integers or None, got {axis!r}")
        found.extend([axis] * len(tree_util.tree_leaves(part)))

    try:
        tree_util.tree_map(spread, marked, tree)
    except ValueError as error:
        raise InvalidValue(
            f"{what} must be a pytree prefix of what it describes: {axes!r} does not fit "
            f"{tree_util.tree_structure(tree)}"
        ) from error
    return found


def vmap(
    fun: Callable,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable:
    """The function that maps `fun` over an axis of its arguments, for all lanes at once.

    `in_axes` is an axis, None (not mapped), or a pytree prefix of the positional arguments; keyword
    arguments are mapped over axis 0. `out_axes` likewise, of the result.

    >>> import fnx.numpy as jnp
    >>> vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones((4, 3)))
    Array([3., 3., 3., 3.], dtype=float64)
    """
    del spmd_axis_name, sum_match
    _check_callable(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @wraps(fun)
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise InvalidValue(
                f"vmap in_axes must be an int, None, or a tuple with one entry for each of the "
                f"{len(args)} positional arguments of {name_of(fun)}; got {len(in_axes)} entries"
            )
        leaves, treedef = flatten_arrays((args, kwargs), "arguments of a vmapped function")
        axes = flatten_axes(in_axes, args, "vmap in_axes")
        axes += [0] * (len(leaves) - len(axes))
        axes, size = _mapped_axes(leaves, axes, axis_size, name_of(fun))
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            given, named = tree_util.tree_unflatten(treedef, xs)
            arrays, structure = flatten_arrays(fun(*given, **named), f"results of {name_of(fun)}")
            structures.append(structure)
            return arrays

        outs, found = batching.batch(flat, size, leaves, axes, axis_name)
        dummy = tree_util.tree_unflatten(structures[0], [0] * len(outs))
        wanted = flatten_axes(out_axes, dummy, "vmap out_axes")
        placed = [_place(size, x, k, to) for x, k, to in zip(outs, found, wanted, strict=True)]
        return tree_util.tree_unflatten(structures[0], placed)

    return vmap_f


def _place(size: int, x: Array, axis: int | None, to: int | None) -> Array:
    if to is None:
        if axis is not None:
            raise InvalidValue(
                "vmap out_axes is None for a result that differs between lanes; give it an axis"
            )
        return x
    rank = x.ndim if axis is not None else x.ndim + 1
    if not -rank <= to < rank:
        raise InvalidValue(f"vmap out_axes={to} is out of range for a result of rank {rank}")
    return batching.place_axis(size, x, axis, to % rank)


def _mapped_axes(
    leaves: list[Array], axes: list[int | None], axis_size: int | None, name: str
) -> tuple[list[int | None], int]:
    sizes: dict[int, list[str]] = {}
    out: list[int | None] = []
    for x, k in zip(leaves, axes, strict=True):
        if k is None:
            out.append(None)
            continue
        if not -x.ndim <= k < x.ndim:
            raise InvalidValue(
                f"vmap of {name} was asked to map axis {k} of an argument of shape {x.shape}, which "
                f"has {x.ndim} axes. Use in_axes=None for arguments that are not mapped."
            )
        k %= x.ndim
        sizes.setdefault(x.shape[k], []).append(x.aval.str_short())
        out.append(k)
    if axis_size is not None:
        sizes.setdefault(axis_size, []).append("axis_size")
    if not sizes:
        raise InvalidValue(
            f"vmap of {name} needs at least one mapped argument, or axis_size; all in_axes are None"
        )
    if len(sizes) > 1:
        text = "; ".join(f"{n} in {', '.join(what)}" for n, what in sizes.items())
        raise InvalidValue(
            f"vmap of {name} got mapped axes of different sizes: {text}. They must be equal; use "
            "in_axes to choose other axes, or None."
        )
    return out, next(iter(sizes))


# --- Jacobians ------------------------------------------------------------------------------------------------


def _basis(leaves: list[Array]) -> list[Array]:
    """For each leaf its block of the identity, [sum of sizes, *shape]."""
    total = sum(x.size for x in leaves)
    blocks, at = [], 0
    for x in leaves:
        block = np.zeros((total, x.size), x.dtype)
        block[np.arange(at, at + x.size), np.arange(x.size)] = 1
        blocks.append(ConcreteArray(block.reshape(total, *x.shape)))
        at += x.size
    return blocks


def _blocks(x: Array, leaves: list[Array], axis: int) -> list[Array]:
    """Split an axis of `sum of sizes` into one of each leaf's shape."""
    from fnx.ops.basic import reshape, slice_axis

    parts, at = [], 0
    for leaf in leaves:
        part = slice_axis(x, at, at + leaf.size, axis)
        shape = (*x.shape[:axis], *leaf.shape, *x.shape[axis + 1 :])
        parts.append(reshape(part, shape))
        at += leaf.size
    return parts


def jacfwd(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The Jacobian of a function, column by column, by forward mode.

    The result has the structure of `fun`'s result, each leaf a pytree like the arguments, with
    shape (*result, *argument).
    """
    _check_callable(fun, "jacfwd")

    @wraps(fun)
    def jacfwd_f(*args: Any, **kwargs: Any) -> Any:
        chosen, picked = split_args(fun, argnums, args, kwargs, "jacfwd")
        aux = _Aux(chosen, has_aux)
        leaves, treedef = flatten_arrays(picked, "differentiated arguments of jacfwd")
        _check_differentiable(leaves, "jacfwd", holomorphic, False)
        structures: list = []
        flat = flat_function(aux, treedef, structures)

        def push(*tangents: Array) -> list[Array]:
            outs, touts = jvp_.jvp(flat, leaves, tangents, what="jacfwd")
            return [zeros(o.aval.strong()) if t is None else t for o, t in zip(outs, touts)]

        size = sum(x.size for x in leaves)
        outs, axes = batching.batch(push, size, _basis(leaves), [0] * len(leaves))
        columns = [
            batching.place_axis(size, x, k, x.ndim - (k is not None))
            for x, k in zip(outs, axes, strict=True)
        ]
        rows = []
        for x in columns:
            parts = _blocks(x, leaves, x.ndim - 1)
            tree = tree_util.tree_unflatten(treedef, parts)
            rows.append(tree[0] if isinstance(argnums, int) else tree)
        result = tree_util.tree_unflatten(structures[0], rows)
        return (result, _lowered_aux_batched(aux.value)) if has_aux else result

    return jacfwd_f


def _lowered_aux_batched(aux: Any) -> Any:
    def lower(x: Any) -> Any:
        while getattr(getattr(x, "owner", None), "ended", False):
            x = x.primal if isinstance(x, jvp_.JVPTracer) else x.value
        return x

    return tree_util.tree_map(lower, aux)


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """The Jacobian of a function, row by row, by reverse mode; the result as in `jacfwd`."""
    _check_callable(fun, "jacrev")

    @wraps(fun)
    def jacrev_f(*args: Any, **kwargs: Any) -> Any:
        chosen, picked = split_args(fun, argnums, args, kwargs, "jacrev")
        aux = _Aux(chosen, has_aux)
        leaves, treedef = flatten_arrays(picked, "differentiated arguments of jacrev")
        _check_differentiable(leaves, "jacrev", holomorphic, allow_int)
        structures: list = []
        flat = flat_function(aux, treedef, structures)
        outs, tape = linearize_.linearize(flat, leaves, [True] * len(leaves), "jacrev")
        _check_differentiable(outs, "jacrev: the result; it", holomorphic, False)

        def pull(*cts: Array) -> list[Array]:
            back = tape.pull(cts)
            return [zeros(x.aval.strong()) if g is None else g for g, x in zip(back, leaves)]

        size = sum(y.size for y in outs)
        grads, axes = batching.batch(pull, size, _basis(outs), [0] * len(outs))
        rows = [batching.place_axis(size, g, k, 0) for g, k in zip(grads, axes, strict=True)]
        split = [_blocks(r, outs, 0) for r in rows]
        trees = []
        for k in range(len(outs)):
            tree = tree_util.tree_unflatten(treedef, [parts[k] for parts in split])
            trees.append(tree[0] if isinstance(argnums, int) else tree)
        result = tree_util.tree_unflatten(structures[0], trees)
        return (result, _lowered_aux(aux.value, None)) if has_aux else result

    return jacrev_f


jacobian = jacrev


def hessian(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable:
    """The matrix of second derivatives, forward over reverse.

    >>> hessian(lambda x: x**3)(2.0)
    Array(12., dtype=float64)
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)


# --- looking at functions -----------------------------------------------------------------------------------


def _static_split(fun: Callable, static_argnums: Any, args: tuple) -> tuple[Callable, tuple]:
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums or ())
    fixed = {k % len(args): args[k] for k in numbers}
    dynamic = tuple(x for k, x in enumerate(args) if k not in fixed)

    def call(*rest: Any, **kwargs: Any) -> Any:
        given = iter(rest)
        return fun(*[fixed[k] if k in fixed else next(given) for k in range(len(args))], **kwargs)

    call.__name__ = name_of(fun)
    return call, dynamic


def trace_user(fun: Callable, args: tuple, kwargs: dict, what: str) -> tuple:
    """Jaxpr, constants and output structure of a function on arguments or ShapeDtypeStructs."""
    leaves, treedef = tree_util.tree_flatten((args, kwargs))
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        given, named = tree_util.tree_unflatten(treedef, xs)
        arrays, structure = flatten_arrays(fun(*given, **named), f"results of {name_of(fun)}")
        structures.append(structure)
        return arrays

    jaxpr, consts = trace(flat, [aval_like(x) for x in leaves], what=what, name=name_of(fun))
    return jaxpr, consts, structures[0]


def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env: Any = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable:
    """The function that gives the jaxpr of `fun` on arguments of these shapes and dtypes.

    >>> print(make_jaxpr(lambda x: x * 2.0)(1.0))
    { lambda ; a:f64[]*. let
        b:f64[]* = mul a 2.0:f64[]*
      in (b,) }
    """
    del axis_env, abstracted_axes
    _check_callable(fun, "make_jaxpr")

    @wraps(fun)
    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = _static_split(fun, static_argnums, args)
        jaxpr, consts, structure = trace_user(call, dynamic, kwargs, f"make_jaxpr of {name_of(fun)}")
        closed = ClosedJaxpr(jaxpr, consts)
        if not return_shape:
            return closed
        shapes = [ShapeDtypeStruct(a.shape, a.dtype) for a in jaxpr.out_avals]
        return closed, tree_util.tree_unflatten(structure, shapes)

    return make_jaxpr_f


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun`'s result, without computing it."""
    jaxpr, _, structure = trace_user(fun, args, kwargs, f"eval_shape of {name_of(fun)}")
    shapes = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in jaxpr.out_avals]
    return tree_util.tree_unflatten(structure, shapes)


def signature_of(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


# --- devices ----------------------------------------------------------------------------------------------------


class Device:
    """The CPU of this process."""

    platform, device_kind, id, process_index = "cpu", "cpu", 0, 0

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"


_CPU = Device()


def devices(backend: str | None = None) -> list[Device]:
    """The devices that arrays can live on."""
    if backend not in (None, "cpu"):
        raise RuntimeError(f"no {backend!r} device here; fnx has: cpu")
    return [_CPU]


local_devices = devices


def device_count(backend: str | None = None) -> int:
    return len(devices(backend))


local_device_count = device_count


def default_backend() -> str:
    return "cpu"


def device_put(x: Any, device: Any = None, *, src: Any = None, **_: Any) -> Any:
    """The leaves of a pytree as arrays."""
    del device, src
    return tree_util.tree_map(as_array, x)


def device_get(x: Any) -> Any:
    """The leaves of a pytree as NumPy arrays."""
    return tree_util.tree_map(lambda a: np.asarray(a) if isinstance(a, Array) else a, x)


def block_until_ready(x: Any) -> Any:
    """`x` itself: results are ready when a call returns."""
    return x


__all__ = [
    "Device",
    "ShapeDtypeStruct",
    "current",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "make_jaxpr",
    "partial",
    "value_and_grad",
    "vjp",
    "vmap",
]
