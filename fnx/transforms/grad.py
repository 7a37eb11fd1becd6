"""Derivatives: grad and vjp in reverse mode, jvp in forward mode, linearize and linear_transpose."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_written, boxed, unboxed
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TangentMismatch, TypeMismatch, entrance
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import eval_jaxpr
from fnx.core.primitive import Undefined
from fnx.interpreters import jvp as jvp_
from fnx.interpreters import linearize as linearize_
from fnx.interpreters.variation import check_cotangents, like, pulled
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import zeros
from fnx.pytree import operations
from fnx.pytree.flatten_fun import (
    Aux,
    Differentiated,
    check_callable,
    flat_function,
    flatten_arrays,
    name_of,
    split_args,
    wraps,
)
from fnx.transforms.mutable_refs import Ref, addupdate
from fnx.transforms.symbolic_zeros import DidntWant, DontWant, GradRef

# --- reverse mode -------------------------------------------------------------------------------


def check_differentiable(
    leaves: list[Array],
    what: str,
    holomorphic: bool,
    allow_int: bool,
    tree: Any = None,
    real: bool = True,
) -> None:
    """Raise for leaves (of a pytree, whose paths errors name) that have no derivatives.

    With `real`, complex leaves need `holomorphic`.
    """
    for n, x in enumerate(leaves):
        kind = dtypes.kind(x.dtype)
        if kind in "biu" and not allow_int:
            where = ""
            if tree is not None and len(leaves) > 1:
                where = f" at {operations.keystr(operations.tree_leaves_with_path(tree)[n][0])}"
            raise TypeMismatch(
                f"{what} needs inputs of a floating dtype, got {dtypes.NAME[x.dtype]}"
                f"{list(x.shape)}{where}. "
                "Integers have no derivatives: convert them (x.astype(float)), choose other argnums, "
                "or pass allow_int=True."
            )
        if kind == "c" and real and not holomorphic:
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
    if not outs and structure.num_nodes == 1:
        raise TypeMismatch(
            f"grad needs a scalar result, but {name} returned None: is a `return` missing?"
        )
    if len(outs) != 1 or not operations.treedef_is_leaf(structure):
        raise TypeMismatch(
            f"grad needs a function with one scalar result, but {name} returned "
            f"{operations.shown(structure)}. Return the loss alone, or pass has_aux=True and return "
            "(loss, aux)."
        )
    (y,) = outs
    if y.shape != ():
        raise TypeMismatch(
            f"grad needs a scalar result (shape ()), but {name} returned "
            f"{dtypes.NAME[y.dtype]}{list(y.shape)}. Sum or average it, or use fnx.jacrev, fnx.vjp."
        )
    if holomorphic:
        if dtypes.kind(y.dtype) != "c":
            raise TypeMismatch(
                f"holomorphic=True needs a complex result, got {dtypes.NAME[y.dtype]}"
            )
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
    the structure, shapes and dtypes of the arguments; that of a complex argument x + iy is
    df/dx - i df/dy. TypeError for integer arguments and for results that are not scalar.

    >>> fnx.value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float64, weak_type=True), Array(6., dtype=float64, weak_type=True))
    """
    del reduce_axes
    check_callable(fun, "value_and_grad")

    @wraps(fun)
    @entrance
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        call = Differentiated(fun, argnums, has_aux, args, kwargs, "grad")
        leaves = call.leaves
        check_differentiable(leaves, "grad", holomorphic, allow_int, call.picked, real=False)
        nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
        outs, tape = linearize_.linearize(call.flat, leaves, nonzero)
        _check_scalar(outs, call.structures[0], name_of(fun), holomorphic)
        one = as_written(ConcreteArray(np.ones((), outs[0].dtype), outs[0].weak_type))
        types = [y.aval for y in outs], [x.aval for x in leaves]
        back = pulled(lambda cts: tape.pull(cts, leaves), [one], *types, tape.eqns)
        grads = [_filled(g, x.aval) for g, x in zip(back, leaves, strict=True)]
        value = (outs[0], call.aux.lowered()) if has_aux else outs[0]
        return value, call.like_arguments(grads)

    return value_and_grad_f


def grad(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Sequence = (),
) -> Callable:
    """The gradient of a function with a scalar result; arguments as in `value_and_grad`.

    >>> fnx.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float64, weak_type=True)
    """
    check_callable(fun, "grad")
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @wraps(fun)
    @entrance
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return grad_f


@entrance
def vjp(fun: Callable, *primals: Any, has_aux: bool = False, reduce_axes: Sequence = ()) -> Any:
    """The result of `fun(*primals)` and a function from its cotangent to those of `primals`.

    >>> y, pull = fnx.vjp(lambda a, b: a * b, 2.0, 5.0)
    >>> pull(1.0)
    (Array(5., dtype=float64, weak_type=True), Array(2., dtype=float64, weak_type=True))
    """
    del reduce_axes
    check_callable(fun, "vjp")
    aux = Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(primals, "arguments of vjp")
    structures: list = []
    nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
    outs, tape = linearize_.linearize(
        flat_function(aux, treedef, structures), leaves, nonzero, "vjp"
    )
    inputs = tuple([x.aval for x in leaves])
    pull = _Pull(tape, _Types(treedef, inputs, structures[0], tuple([o.aval for o in outs])))
    y = operations.tree_unflatten(structures[0], outs)
    return (y, pull, aux.lowered()) if has_aux else (y, pull)


def fwd_and_bwd(
    fun: Callable, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Callable, Callable]:
    """`vjp` as two functions, compiled unless `jitted` is false: one that gives the result and
    residuals (and aux), and one of residuals and a cotangent that gives the gradients.

    >>> forward, backward = fnx.fwd_and_bwd(lambda a, b: a * b, argnums=(0, 1))
    >>> y, residuals = forward(2.0, 5.0)
    >>> backward(residuals, 1.0)
    (Array(5., dtype=float64, weak_type=True), Array(2., dtype=float64, weak_type=True))
    """
    check_callable(fun, "fwd_and_bwd")

    def forward(*args: Any, **kwargs: Any) -> Any:
        chosen, picked = split_args(fun, argnums, args, kwargs, "fwd_and_bwd")
        return vjp(chosen, *picked, has_aux=has_aux)

    def backward(residuals: Any, ct: Any) -> Any:
        grads = residuals(ct)
        return grads[0] if isinstance(argnums, int) else grads

    if not jitted:
        return forward, backward
    from fnx.transforms.jit import jit

    return jit(forward), jit(backward)


@dataclass(frozen=True, eq=False)
class _Types:
    """What a pull function knows beside its residuals."""

    treedef: Any
    inputs: tuple[ShapedArray, ...]
    structure: Any
    outs: tuple[ShapedArray, ...]


class _Linear:
    """A linear function that a derivative is; a pytree whose leaves are its residuals."""

    def __init__(self, tape: Any, types: _Types):
        self.tape, self.types = tape, types


class _Pull(_Linear):
    """The function that `vjp` returns."""

    @entrance
    def __call__(self, *given: Any) -> Any:
        if len(given) != 1:
            raise TypeMismatch(
                f"the function that vjp returns takes one cotangent, of the structure of the result; got "
                f"{len(given)}"
            )
        (ct,), types = given, self.types
        cts, structure = operations.tree_flatten(ct)
        if structure != types.structure:
            raise TangentMismatch(
                f"the cotangent of a vjp is {operations.shown(structure)}; expected the structure of the "
                f"result, {operations.shown(types.structure)}"
            )
        what = "the cotangent of a vjp"
        cts = [check_like(c, a, what, own=True) for c, a in zip(cts, types.outs)]
        check_cotangents(cts, types.outs, what)
        back = pulled(self.tape.pull, cts, types.outs, types.inputs, self.tape.eqns)
        grads = [_filled(g, a) for g, a in zip(back, types.inputs, strict=True)]
        return operations.tree_unflatten(types.treedef, grads)

    def with_refs(self, *refs: Any) -> Callable:
        """The same function, which adds the cotangents of arguments to the Refs that are given for them.

        For each argument there is a pytree prefix: a Ref, `fnx.ad.DontWant()` where none is asked for,
        and `fnx.ad.GradValue()` (or anything else) where the cotangent is returned.
        """
        return lambda ct: operations.tree_map(_added, refs, self(ct), is_leaf=lambda r: r is None)


def _added(ref: Any, cotangents: Any) -> Any:
    if isinstance(ref, DontWant):
        return DidntWant()
    if not isinstance(ref, Ref):
        return cotangents
    addupdate(ref, ..., cotangents)
    return GradRef()


class _Push(_Linear):
    """The function that `linearize` returns."""

    @entrance
    def __call__(self, *tangents: Any) -> Any:
        types = self.types
        tans, structure = operations.tree_flatten(tangents)
        if structure != types.treedef:
            raise TypeMismatch(
                f"the tangents are {operations.shown(structure)}; expected "
                f"{operations.shown(types.treedef)}"
            )
        given = [
            check_like(t, a, "a tangent of a linearized function")
            for t, a in zip(tans, types.inputs, strict=True)
        ]
        touts = self.tape.push(given)
        filled = [_filled(t, o) for t, o in zip(touts, types.outs, strict=True)]
        return operations.tree_unflatten(types.structure, filled)


class _ClosedTape:
    """A tape whose residuals are inputs of a jaxpr: it can leave the function that recorded it."""

    def __init__(self, residuals: Sequence[Any], jaxpr: Any, inputs: tuple, outs: tuple):
        self.residuals, self.jaxpr = list(residuals), jaxpr
        self.inputs, self.outs = inputs, outs  # which have tangents
        self.eqns = jaxpr.eqns

    def push(self, tangents: Sequence[Array | None]) -> list[Array | None]:
        variables = iter(self.jaxpr.inputs[len(self.residuals) :])
        known = [t for t, nonzero in zip(tangents, self.inputs, strict=True) if nonzero]
        given = [zeros(v.aval) if t is None else t for t, v in zip(known, variables)]
        touts = iter(eval_jaxpr(self.jaxpr, [*self.residuals, *given]))
        return [next(touts) if nonzero else None for nonzero in self.outs]

    def pull(self, cts: Sequence[Array | None]) -> list[Array | None]:
        variables = self.jaxpr.inputs[len(self.residuals) :]
        args = [*self.residuals, *(Undefined(v.aval) for v in variables)]
        given = [ct for ct, nonzero in zip(cts, self.outs, strict=True) if nonzero]
        back = iter(linearize_.backward_jaxpr(self.jaxpr, args, given)[len(self.residuals) :])
        return [next(back) if nonzero else None for nonzero in self.inputs]


def _flatten_linear(function: _Linear) -> tuple[list, tuple]:
    tape = function.tape
    if not isinstance(tape, _ClosedTape):
        jaxpr, residuals, mask = tape.close()
        tape = _ClosedTape(residuals, jaxpr, tuple([v is not None for v in tape.inputs]), mask)
        function.tape = tape  # the same structure each time
    return tape.residuals, (tape.jaxpr, tape.inputs, tape.outs, function.types)


def _register(kind: type[_Linear]) -> None:
    def unflatten(known: tuple, residuals: Sequence[Any]) -> _Linear:
        return kind(_ClosedTape(residuals, *known[:3]), known[3])

    operations.register_pytree_node(kind, _flatten_linear, unflatten)


_register(_Pull)
_register(_Push)


def check_like(
    x: Any, aval: ShapedArray, what: str, tangent: bool = True, own: bool = False
) -> Array | None:
    """`x` as the tangent or cotangent of a value of type `aval`; None for those that have none.

    Not a `tangent` but a value of that very type is an operand of a linear function. With `own`
    integers may stand for what goes with them, as in JAX, where results are given as cotangents.
    """
    if tangent and not dtypes.is_inexact(aval.dtype):
        given = np.result_type(getattr(x, "dtype", type(x)))
        if given != dtypes.float0 and not (own and given == aval.dtype):
            raise TangentMismatch(
                f"{what} has dtype {given}; expected float0, np.zeros(shape, fnx.dtypes.float0), since "
                f"the value is of dtype {dtypes.NAME[aval.dtype]}: convert that with .astype(float)"
            )
        if np.shape(x) != aval.shape:
            raise ShapeError(f"{what} has shape {np.shape(x)}; expected {aval.shape}")
        return None
    x = boxed(x)
    if x.shape != aval.shape:
        raise ShapeError(f"{what} has shape {x.shape}; expected {aval.shape}")
    # A number of the program's text has no width of its own.
    same_kind = x.aval.weak_type and dtypes.kind(x.dtype) == dtypes.kind(aval.dtype)
    if x.dtype != aval.dtype and not same_kind:
        expected = f"expected {dtypes.NAME[aval.dtype]}"
        raise TangentMismatch(f"{what} has dtype {dtypes.NAME[x.dtype]}; {expected}")
    return x if x.dtype == aval.dtype else ConvertElementType(aval.dtype, x.aval.weak_type)(x)


# --- forward mode ------------------------------------------------------------------------------


@entrance
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)` and its derivative along `tangents`.

    TypeError for what are not tuples or lists of one structure and of equal shapes and dtypes.

    >>> fnx.jvp(lambda x: x * x, (3.0,), (1.0,))[1]
    Array(6., dtype=float64, weak_type=True)
    """
    check_callable(fun, "jvp")
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeMismatch(
            "jvp needs tuples of primals and tangents, one entry an argument; got "
            f"{type(primals).__name__} and {type(tangents).__name__}. Write (x,) for one argument."
        )
    aux = Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(tuple(primals), "primals of jvp", boxed)
    tans, structure = operations.tree_flatten(tuple(tangents))
    if structure != treedef:
        raise TypeMismatch(
            f"primals and tangents differ in structure: {operations.shown(treedef)} and "
            f"{operations.shown(structure)}"
        )
    given = [check_like(t, x.aval, "a tangent of jvp") for t, x in zip(tans, leaves, strict=True)]
    structures: list = []
    outs, touts = jvp_.jvp(flat_function(aux, treedef, structures), leaves, given)
    ys = [unboxed(o) for o in outs]  # numbers that nothing was done to, then so are their tangents
    dys = [_filled(t, o.aval, y is not o) for t, o, y in zip(touts, outs, ys)]
    pair = tuple([structures[0].unflatten(z) for z in (ys, dys)])
    return (*pair, aux.lowered()) if has_aux else pair


def _filled(t: Array | None, aval: ShapedArray, number: bool = False) -> Any:
    """A tangent or cotangent as users see it: zeros where there is none, float0 for integers."""
    if not dtypes.is_inexact(aval.dtype):
        return np.zeros(aval.shape, dtypes.float0)
    return like(typed_zeros(aval), aval) if t is None else unboxed(t) if number else t


@entrance
def linearize(fun: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """The result of `fun(*primals)` and the linear function that is its derivative there.

    >>> y, tangent_of = fnx.linearize(jnp.square, 3.0)
    >>> float(y), float(tangent_of(1.0)), float(tangent_of(10.0))
    (9.0, 6.0, 60.0)
    """
    check_callable(fun, "linearize")
    aux = Aux(fun, has_aux)
    leaves, treedef = flatten_arrays(primals, "arguments of linearize")
    structures: list = []
    nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
    flat = flat_function(aux, treedef, structures)
    outs, tape = linearize_.linearize(flat, leaves, nonzero, "linearize")
    y = operations.tree_unflatten(structures[0], outs)

    inputs = tuple([x.aval for x in leaves])
    push = _Push(tape, _Types(treedef, inputs, structures[0], tuple([o.aval for o in outs])))
    return (y, push, aux.lowered()) if has_aux else (y, push)
