"""Sparse arrays that are made from nothing: empty ones, diagonals, random ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import numpy, random
from fnx.core.errors import InvalidValue
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.bcsr import BCSR
from fnx.experimental.sparse.coo import COO
from fnx.experimental.sparse.csr import CSC, CSR

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


def empty(
    shape: Sequence[int],
    dtype: Any = None,
    index_dtype: Any = np.int32,
    sparse_format: str = "bcoo",
    nse: int = 0,
) -> Any:
    """A sparse array of zeros, with places for `nse` elements, in one of the formats "bcoo", "bcsr",
    "coo", "csr" and "csc".

    >>> from fnx.experimental import sparse
    >>> sparse.empty((2, 3)).nse
    0
    """
    outside = jnp.tile(jnp.asarray(tuple(shape), index_dtype), (nse, 1))
    found = BCOO((jnp.zeros(nse, dtype), outside), shape=shape)
    return _as_format(found, sparse_format)


def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, index_dtype: Any = np.int32,
    sparse_format: str = "bcoo",
) -> Any:  # fmt: skip
    """Ones along a diagonal; the formats are those of `empty`.

    >>> from fnx.experimental import sparse
    >>> sparse.eye(2).todense()
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    M = N if M is None else M
    count = max(0, min(N, M - k) if k >= 0 else min(N + k, M))
    along = np.arange(count, dtype=index_dtype)
    indices = np.stack([along - min(k, 0), along + max(k, 0)], -1)
    found = BCOO(
        (jnp.ones(count, dtype), indices), shape=(N, M), indices_sorted=True, unique_indices=True
    )
    return _as_format(found, sparse_format)


_FORMATS = {"bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _as_format(m: BCOO, sparse_format: str) -> Any:
    if sparse_format == "bcoo":
        return m
    if sparse_format not in _FORMATS:
        raise InvalidValue(
            f"sparse_format={sparse_format!r}; expected one of bcoo, {', '.join(_FORMATS)}"
        )
    return _FORMATS[sparse_format].from_bcoo(m)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = float,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A sparse array with random elements at random places: `nse` of them, or that part of all.

    ValueError for batch or dense axes.

    >>> from fnx.experimental import sparse
    >>> sparse.random_bcoo(fnx.random.key(0), (10, 10), nse=0.1).nse
    10
    """
    if n_batch or n_dense:
        raise InvalidValue("random_bcoo with batch or dense axes, which BCOO does not have here")
    size = int(np.prod(shape, dtype=int))
    count = int(np.ceil(nse * size)) if 0 < nse < 1 else int(nse)
    place_key, data_key = random.split(key)
    flat = random.choice(place_key, size, (count,), replace=not unique_indices)
    flat = jnp.sort(flat) if sorted_indices else flat
    indices = jnp.stack(jnp.unravel_index(flat, tuple(shape)), -1).astype(indices_dtype or np.int32)
    data = generator(data_key, shape=(count,), dtype=dtype, **kwds)
    return BCOO(
        (data, indices), shape=shape, unique_indices=unique_indices, indices_sorted=sorted_indices
    )
