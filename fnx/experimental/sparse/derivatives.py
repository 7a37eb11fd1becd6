"""Gradients with respect to sparse arrays: of their data, at the same indices."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from fnx.experimental.sparse.bcoo import JAXSparse
from fnx.pytree.operations import tree_map
from fnx.transforms.grad import value_and_grad as dense_value_and_grad


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def _data(tree: Any) -> Any:
    return tree_map(lambda x: x.data if _is_sparse(x) else x, tree, is_leaf=_is_sparse)


def _with_data(tree: Any, data: Any) -> Any:
    """The tree with other data."""

    def one(x: Any, d: Any) -> Any:
        if not _is_sparse(x):
            return d
        children, aux = x.tree_flatten()
        return type(x).tree_unflatten(aux, (d, *children[1:]))

    return tree_map(one, tree, data, is_leaf=_is_sparse)


def value_and_grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """As `fnx.value_and_grad`; the gradient of a sparse array is one with the same indices.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> value, slope = sparse.value_and_grad(lambda m: (m @ jnp.arange(3.0)) ** 2)(m)
    >>> float(value), slope.todense()
    (64.0, Array([ 0., 16., 32.], dtype=float64))
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @wraps(fun)
    def value_and_grad_of(*args: Any, **named: Any) -> tuple:
        chosen = [args[k] for k in numbers]

        def of_data(data: list) -> Any:
            given = list(args)
            for k, x, d in zip(numbers, chosen, data, strict=True):
                given[k] = _with_data(x, d)
            return fun(*given, **named)

        value, slopes = dense_value_and_grad(of_data, has_aux=has_aux, **kwargs)(_data(chosen))
        found = tuple([_with_data(x, d) for x, d in zip(chosen, slopes, strict=True)])
        return value, found[0] if isinstance(argnums, int) else found

    return value_and_grad_of


def grad(
    fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable:
    """As `fnx.grad`; the gradient of a sparse array is one with the same indices.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.grad(lambda m: m @ jnp.arange(3.0))(m).todense()
    Array([0., 1., 2.], dtype=float64)
    """
    both = value_and_grad(fun, argnums, has_aux, **kwargs)

    @wraps(fun)
    def grad_of(*args: Any, **named: Any) -> Any:
        value, slope = both(*args, **named)
        return (slope, value[1]) if has_aux else slope

    return grad_of
