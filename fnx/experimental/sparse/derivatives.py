"""Gradients and Jacobians with respect to sparse arrays: of their data, at the same indices."""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import TypeMismatch
from fnx.experimental.sparse.bcoo import BCOO, JAXSparse, jnp
from fnx.pytree.operations import tree_flatten, tree_map
from fnx.transforms.grad import value_and_grad as dense_value_and_grad
from fnx.transforms.jacobian import jacfwd as dense_jacfwd
from fnx.transforms.jacobian import jacrev as dense_jacrev


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


def _spread(x: Any, d: Array) -> Any:
    """The Jacobian of a dense result with respect to a sparse array, of that with respect to its data."""
    ahead = d.shape[: d.ndim - x.data.ndim]
    if not ahead:
        return _with_data(x, d)
    if not isinstance(x, BCOO):
        if not hasattr(x, "to_bcoo"):
            raise TypeMismatch(
                f"the Jacobian of a result of shape {ahead} with respect to a {type(x).__name__}; "
                "expected a BCOO or BCSR"
            )
        x = x.to_bcoo()
    rows = math.prod(ahead)
    of_result = jnp.stack(jnp.unravel_index(jnp.arange(rows), ahead), -1)
    of_result = jnp.repeat(of_result.astype(x.indices.dtype), x.nse, axis=0)
    indices = jnp.concatenate([of_result, jnp.tile(x.indices, (rows, 1))], axis=1)
    return BCOO(
        (d.reshape(-1), indices),
        shape=(*ahead, *x.shape),
        indices_sorted=x.indices_sorted,
        unique_indices=x.unique_indices,
    )


def _jacobian(name: str, dense: Callable) -> Callable:
    def jacobian(
        fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
    ) -> Callable:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        @wraps(fun)
        def jacobian_of(*args: Any, **named: Any) -> Any:
            chosen = [args[k] for k in numbers]
            structures: list = []

            def of_data(data: list) -> Any:
                given = list(args)
                for k, x, d in zip(numbers, chosen, data, strict=True):
                    given[k] = _with_data(x, d)
                out = fun(*given, **named)
                leaves, structure = tree_flatten(out[0] if has_aux else out)
                structures[:] = [structure]
                return (leaves, out[1]) if has_aux else leaves

            made = dense(of_data, has_aux=has_aux, **kwargs)(_data(chosen))
            rows, aux = made if has_aux else (made, None)

            def one(x: Any, d: Any) -> Any:
                return _spread(x, d) if _is_sparse(x) else d

            found = []
            for row in rows:
                own = tuple(
                    [
                        tree_map(one, x, d, is_leaf=_is_sparse)
                        for x, d in zip(chosen, row, strict=True)
                    ]
                )
                found.append(own[0] if isinstance(argnums, int) else own)
            out = structures[0].unflatten(found)
            return (out, aux) if has_aux else out

        return jacobian_of

    jacobian.__name__ = jacobian.__qualname__ = name
    jacobian.__doc__ = f"""As `fnx.{name}`, of dense results; with respect to a sparse array a sparse one.

    Its first axes are those of the result. Elements that the argument does not store have no slope here.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> sparse.{name}(lambda m: m @ jnp.array([5.0, 7.0]))(m).todense()
    Array([[[0., 7.],
            [0., 0.]],
    <BLANKLINE>
           [[0., 0.],
            [5., 0.]]], dtype=float64)
    """
    return jacobian


jacfwd = _jacobian("jacfwd", dense_jacfwd)
jacrev = jacobian = _jacobian("jacrev", dense_jacrev)
