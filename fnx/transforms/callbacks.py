"""Python functions called from within transformed functions: pure_callback and io_callback."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import config
from fnx.core.array import Array, as_array, is_array_like
from fnx.core.errors import InvalidValue, JaxRuntimeError, TypeMismatch, of_both, raised_by_callback
from fnx.ops.callback import METHODS, Callback
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like, check_callable, name_of


class Flat:
    """`function(*args, **kwargs)` as a function of the arrays among its leaves."""

    def __init__(self, function: Callable, args: tuple, kwargs: dict):
        leaves, self.treedef = operations.tree_flatten((args, kwargs))
        self.function = function
        self.traced = [is_array_like(x) for x in leaves]
        self.others = [None if t else x for x, t in zip(leaves, self.traced)]
        self.arrays: list[Array] = [as_array(x) for x, t in zip(leaves, self.traced) if t]

    def call(self, values: Sequence) -> Any:
        it = iter(map(as_array, values) if config.callback_arrays.value else values)
        leaves = [next(it) if t else x for x, t in zip(self.others, self.traced)]
        arguments: Any = self.treedef.unflatten(leaves)
        try:
            return self.function(*arguments[0], **arguments[1])
        except Exception as error:
            raise raised_by_callback(error) from error.__cause__


def _call(
    callback: Callable, results: Any, args: tuple, kwargs: dict, what: str, **options: Any
) -> Any:
    check_callable(callback, what)
    shapes, structure = operations.tree_flatten(results)
    avals = tuple([aval_like(s).strong() for s in shapes])
    flat = Flat(callback, args, kwargs)

    def fn(*values: Any) -> list:
        leaves, found = operations.tree_flatten(flat.call(values))
        if len(leaves) != len(avals):  # leaf by leaf, as in JAX, whatever holds them
            raise of_both(
                TypeMismatch,
                JaxRuntimeError,
                f"{name_of(callback)}, called by {what}, returned {operations.shown(found)}; "
                f"declared was {operations.shown(structure)}",
            )
        return leaves

    return structure.unflatten(Callback(fn, avals, name=what, **options)(*flat.arrays))


def pure_callback(
    callback: Callable,
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vectorized: bool | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """The result of a Python function without side effects, called on NumPy arrays when the program runs.

    With the setting `callback_arrays`, which `import fnx.jax` switches on, it gets arrays, as in JAX.

    `result_shape_dtypes` is a pytree of ShapeDtypeStructs like the result. Under vmap, `vmap_method`
    "sequential" calls it for each element, "expand_dims" and "broadcast_all" once with a leading axis.
    It may run any number of times, or not at all. NotImplementedError under grad: give it a rule.

    >>> fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct((), float), 0.0)
    Array(0., dtype=float64)
    """
    del sharding
    if vectorized is not None and vmap_method is None:
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method not in (None, *METHODS):
        raise InvalidValue(f"vmap_method={vmap_method!r}; expected one of {', '.join(METHODS)}")
    what = "pure_callback"
    return _call(callback, result_shape_dtypes, args, kwargs, what, vmap_method=vmap_method)


def io_callback(
    callback: Callable,
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """As `pure_callback`, of a function with side effects: it runs each time the program comes to it.

    Calls happen in the order of the program, `ordered` or not.

    >>> from fnx.experimental import io_callback
    >>> log = []
    >>> fnx.jit(lambda x: io_callback(lambda v: log.append(float(v)), None, x))(2.0)
    >>> log
    [2.0]
    """
    del sharding, ordered
    options = {"vmap_method": "sequential", "effects": True}
    return _call(callback, result_shape_dtypes, args, kwargs, "io_callback", **options)
