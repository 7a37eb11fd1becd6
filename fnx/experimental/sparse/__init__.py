"""Sparse arrays: BCOO (coordinates) and BCSR (compressed rows), their products with dense arrays."""

from collections.abc import Callable as _Callable

from fnx.experimental.sparse.bcoo import BCOO as BCOO
from fnx.experimental.sparse.bcoo import JAXSparse as JAXSparse
from fnx.experimental.sparse.bcoo import bcoo_fromdense as bcoo_fromdense
from fnx.experimental.sparse.bcoo import bcoo_reduce_sum as bcoo_reduce_sum
from fnx.experimental.sparse.bcoo import bcoo_todense as bcoo_todense
from fnx.experimental.sparse.bcoo import todense as todense
from fnx.experimental.sparse.bcsr import BCSR as BCSR
from fnx.experimental.sparse.creation import empty as empty
from fnx.experimental.sparse.creation import eye as eye
from fnx.experimental.sparse.creation import random_bcoo as random_bcoo
from fnx.experimental.sparse.derivatives import grad as grad
from fnx.experimental.sparse.derivatives import value_and_grad as value_and_grad
from fnx.experimental.sparse.functions import bcoo_concatenate as bcoo_concatenate
from fnx.experimental.sparse.functions import bcoo_dot_general as bcoo_dot_general
from fnx.experimental.sparse.functions import bcoo_multiply_sparse as bcoo_multiply_sparse
from fnx.experimental.sparse.functions import bcoo_reshape as bcoo_reshape
from fnx.experimental.sparse.functions import bcoo_slice as bcoo_slice
from fnx.experimental.sparse.functions import bcoo_sort_indices as bcoo_sort_indices
from fnx.experimental.sparse.functions import bcoo_squeeze as bcoo_squeeze
from fnx.experimental.sparse.functions import bcoo_sum_duplicates as bcoo_sum_duplicates
from fnx.experimental.sparse.functions import bcoo_transpose as bcoo_transpose


def sparsify(f: _Callable, use_tracer: bool = False) -> _Callable:
    """`f` itself: sparse arrays go through transformations as pytrees, and have operators of their own.

    >>> from fnx.experimental import sparse
    >>> sparse.sparsify(lambda m, v: m @ v)(sparse.eye(2), jnp.array([1.0, 2.0]))
    Array([1., 2.], dtype=float64)
    """
    del use_tracer
    return f
