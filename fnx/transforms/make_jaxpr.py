"""Looking at functions without running them: their jaxprs, and the shapes of their results."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.config import rank_0_consts, set_rank_0_consts
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import current, use
from fnx.core.jaxpr import ClosedJaxpr
from fnx.core.source import brief
from fnx.interpreters.spmd import Spmd
from fnx.interpreters.trace import CapturedRefs, trace
from fnx.ops.structure.basic import zeros
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like, check_callable, flatten_arrays, name_of, wraps
from fnx.transforms.mutable_refs import Ref, carrying, ref_like


class ShapeDtypeStruct:
    """A shape and a dtype that stand for an array where only those are needed.

    InvalidValue, a ValueError, for the dtype None.

    >>> fnx.ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(
        self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False, **_
    ):
        if dtype is None:
            raise InvalidValue(
                f"ShapeDtypeStruct of shape {shape} and dtype {dtype}; expected a dtype"
            )
        self.shape = tuple(shape)
        self.dtype = dtypes.of_avals(dtype)
        self.weak_type = weak_type
        self.sharding = sharding

    def update(self, **changes: Any) -> "ShapeDtypeStruct":
        """The same but for these."""
        own = {k: getattr(self, k) for k in ("shape", "dtype", "sharding", "weak_type")}
        return ShapeDtypeStruct(**(own | changes))

    @staticmethod
    def like(x: Any) -> "ShapeDtypeStruct":
        """That of an array."""
        aval = aval_like(x)
        return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=int)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a shape of rank 0")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple:
        return self.shape, self.dtype, self.sharding, self.weak_type

    def __repr__(self) -> str:
        sharding = "" if self.sharding is None else f", sharding={self.sharding}"
        weak = ", weak_type=True" if self.weak_type else ""
        name = dtypes.NAME.get(self.dtype, str(self.dtype))
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={name}{sharding}{weak})"


def _is_key_dtype(dtype: Any) -> bool:
    from fnx.numpy.arrays.key_arrays import is_key_dtype

    return is_key_dtype(dtype)


def flatten_types(tree: Any) -> tuple[list, Any]:
    """Leaves and structure of arrays and types; those of keys are the types of their words."""
    leaves, treedef = operations.tree_flatten(tree)
    of_keys = [type(x) is ShapeDtypeStruct and _is_key_dtype(x.dtype) for x in leaves]
    if not any(of_keys):
        return leaves, treedef
    leaves = [_words_of(x) if yes else x for x, yes in zip(leaves, of_keys, strict=True)]
    return operations.tree_flatten(operations.tree_unflatten(treedef, leaves))


def _words_of(x: ShapeDtypeStruct) -> Any:
    return x.dtype.over(ShapeDtypeStruct((*x.shape, x.dtype.words), np.uint32), x.dtype)


def unflatten_types(treedef: Any, types: list) -> Any:
    """The tree of these types, where those of the words of keys are types of keys."""
    tree = operations.tree_unflatten(treedef, types)
    if not operations.leaves_elsewhere:
        return tree
    whole = lambda x: type(x) in operations.leaves_elsewhere
    return operations.tree_map(_type_of_keys, tree, is_leaf=whole)


def _type_of_keys(x: Any) -> Any:
    from fnx.numpy.arrays.key_arrays import is_keys

    return ShapeDtypeStruct(x.shape, x.dtype) if is_keys(x) else x


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
    """Jaxpr, constants and output structure of a function on arguments or ShapeDtypeStructs.

    Mutable references are arrays that the jaxpr gets, as arguments or constants, and gives after results.
    """
    leaves, treedef = flatten_types((args, kwargs))
    held = [isinstance(x, Ref) for x in leaves]
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        values: list[Any] = [ref_like(r, x) if h else x for x, h, r in zip(xs, held, leaves)]
        given, named = operations.tree_unflatten(treedef, values)
        arrays, structure = flatten_arrays(fun(*given, **named), f"results of {name_of(fun)}")
        structures[:] = [structure]
        return [*arrays, *[x.value for x, h in zip(values, held) if h]]

    avals = [x.aval if h else aval_like(x) for x, h in zip(leaves, held)]
    try:
        jaxpr, consts = trace(flat, avals, what=what, name=name_of(fun))
    except CapturedRefs as found:
        outside, carried = found.refs, carrying(flat, found.refs)
        start = [r.value for r in outside]

        def with_outside(*xs: Array) -> list[Array]:
            values, arrays = carried(start, *xs)
            return [*arrays, *values]

        jaxpr, consts = trace(with_outside, avals, what=what, name=name_of(fun))
    return jaxpr, consts, structures[0]


def make_jaxpr(
    fun: Callable,
    static_argnums: int | Sequence[int] = (),
    axis_env: Any = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable:
    """The function that gives the jaxpr of `fun` on arguments of these shapes and dtypes.

    `axis_env` lists named axes and their sizes, for functions that use collectives.

    >>> print(fnx.make_jaxpr(lambda x: x * 2.0)(1.0))
    { lambda ; a:f64[]*. let
        b:f64[]* = mul a 2.0:f64[]*
      in (b,) }
    """
    del abstracted_axes
    check_callable(fun, "make_jaxpr")

    @wraps(fun)
    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = _static_split(fun, static_argnums, args)
        token = set_rank_0_consts[True]
        try:
            with use(Spmd(current.get(), dict(axis_env))) if axis_env else nullcontext():
                jaxpr, consts, structure = trace_user(
                    call, dynamic, kwargs, f"make_jaxpr of {name_of(fun)}"
                )
        finally:
            rank_0_consts.reset(token)
        closed = ClosedJaxpr(jaxpr, consts)
        if not return_shape:
            return closed
        avals = jaxpr.out_avals[: structure.num_leaves]
        shapes = [ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
        return closed, unflatten_types(structure, shapes)

    make_jaxpr_f.__name__ = f"make_jaxpr({name_of(fun)})"
    return make_jaxpr_f


def _array_of(x: Any) -> Any:
    if type(x) is ShapeDtypeStruct and _is_key_dtype(x.dtype):
        return x.dtype.over(zeros(aval_like(_words_of(x).words)), x.dtype)
    return zeros(aval_like(x)) if isinstance(x, ShapeDtypeStruct) else x


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun`'s result, without computing it; it may return such itself.

    >>> fnx.eval_shape(lambda x: x @ x.T, jnp.ones((2, 3))).shape
    (2, 2)
    """

    if not callable(fun):
        raise TypeMismatch(
            f"eval_shape needs a function, got {type(fun).__name__}: {brief(fun, 80)}"
        )

    @wraps(fun)
    def with_arrays(*args: Any, **kwargs: Any) -> Any:
        return operations.tree_map(_array_of, fun(*args, **kwargs))

    jaxpr, _, structure = trace_user(with_arrays, args, kwargs, f"eval_shape of {name_of(fun)}")
    avals = jaxpr.out_avals[: structure.num_leaves]
    shapes = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    return unflatten_types(structure, shapes)
