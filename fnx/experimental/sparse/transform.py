"""Functions of dense arrays as functions of sparse ones, under the name of JAX's module."""

from collections.abc import Callable


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """`f` itself: sparse arrays go through transformations as pytrees, and have operators of their own.

    >>> from fnx.experimental import sparse
    >>> sparse.sparsify(lambda m, v: m @ v)(sparse.eye(2), jnp.array([1.0, 2.0]))
    Array([1., 2.], dtype=float64)
    """
    del use_tracer
    return f
