"""The largest eigenvalues of a Hermitian matrix of which only products are known."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fnx import numpy
from fnx.control_flow import while_loop
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.util import to_arrays
from fnx.transforms.make_jaxpr import ShapeDtypeStruct, eval_shape

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

SMALLEST_PART = 5  # a basis of three blocks, and room beside it: k of them need more than 5 k rows
SLACK = 10.0  # of a residual, over what rounding leaves of that of an exact eigenvector


class _State(NamedTuple):
    vectors: Any  # (n, k), orthonormal, the best ones first
    steps: Any  # (n, k), the directions of the last step, orthonormal beside them, or zero
    values: Any  # (k,)
    residual: Any  # (n, k)
    done: Any
    i: Any


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Array, Array, Array]:
    """The k largest eigenvalues of a Hermitian matrix, their vectors, and the iterations made.

    `A` is the matrix (n, n), or the function that multiplies it with an array (n, j); `X` (n, k) are
    k independent vectors to start from, and 5 k < n. Ends after `m` iterations, or where each residual
    is below `tol * 10 n (|A v| + value)`; without `tol` the dtype's eps. The method is LOBPCG (Knyazev):
    each iteration takes the best k vectors of the span of the last ones, their residuals, and the last
    steps. ValueError for shapes or dtypes that do not fit.

    >>> from fnx.experimental.sparse.linalg import lobpcg_standard
    >>> matrix = jnp.diag(jnp.arange(12.0))
    >>> values, vectors, _ = lobpcg_standard(matrix, jnp.eye(12, 2) + 0.1)
    >>> print(values.round(6), vectors.shape)
    [11. 10.] (12, 2)
    """
    (X,) = to_arrays("lobpcg_standard", X)
    multiply = A if callable(A) else _product(A)
    _check(A, multiply, X)
    k = X.shape[1]
    tol = jnp.finfo(X.dtype).eps if tol is None else tol

    def improved(s: _State) -> _State:
        directions = _independent(s.residual, jnp.concatenate([s.vectors, s.steps], 1))
        basis = jnp.concatenate([s.vectors, s.steps, directions], 1)
        vectors, chosen = _best(multiply, basis, k)
        steps = basis[:, k:] @ chosen[k:]
        return _judged(multiply, vectors, _independent(steps, vectors), tol, s.i + 1)

    vectors, _ = _best(multiply, _independent(X, X[:, :0]), k)
    start = _judged(multiply, vectors, jnp.zeros_like(vectors), tol, 0)
    end = while_loop(lambda s: (s.i < m) & ~s.done, improved, start)
    order = jnp.argsort(-end.values)  # equal ones differ by roundings
    return end.values[order], end.vectors[:, order], end.i


def _product(A: Any) -> Callable:
    (A,) = to_arrays("lobpcg_standard", A)
    return lambda x: A @ x


def _check(A: Any, multiply: Callable, X: Any) -> None:
    if X.ndim != 2 or not 0 < SMALLEST_PART * X.shape[1] < X.shape[0]:
        raise InvalidValue(
            f"lobpcg_standard got X of shape {X.shape}; expected (n, k) with 0 < 5 k < n"
        )
    n = X.shape[0]
    shape = None if callable(A) else jnp.shape(A)
    if shape is None or shape == (n, n):
        result = eval_shape(multiply, ShapeDtypeStruct(X.shape, X.dtype))
        if (result.shape, result.dtype) == (X.shape, X.dtype):
            return
        raise InvalidValue(
            f"lobpcg_standard got an A that makes {result.dtype} of shape {result.shape} from X of "
            f"dtype {X.dtype} and shape {X.shape}; expected the same dtype and shape"
        )
    raise InvalidValue(
        f"lobpcg_standard got A of shape {shape} and X of shape {X.shape}; expected A of shape {(n, n)}"
    )


def _judged(multiply: Callable, vectors: Any, steps: Any, tol: Any, i: Any) -> _State:
    image = multiply(vectors)
    values = jnp.sum(vectors.conj() * image, 0).real
    residual = image - vectors * values
    most = tol * SLACK * len(vectors) * (jnp.linalg.norm(image, axis=0) + jnp.abs(values))
    done = jnp.all(jnp.linalg.norm(residual, axis=0) <= most)
    return _State(vectors, steps, values, residual, done, jnp.asarray(i))


def _best(multiply: Callable, basis: Any, k: int) -> tuple[Any, Any]:
    """Of a span the k vectors with the largest Rayleigh quotients, and what makes them of its basis.

    Columns of zeros, which stand for vectors that were not independent, come last.
    """
    small = basis.conj().T @ multiply(basis)
    lowest = -2.0 * jnp.linalg.norm(small) - 1.0
    empty = ~jnp.any(basis != 0, 0)
    small = (small + small.conj().T) / 2 + jnp.diag(jnp.where(empty, lowest, 0.0)).astype(
        small.dtype
    )
    _, coefficients = jnp.linalg.eigh(small)
    chosen = coefficients[:, ::-1][:, :k]
    return basis @ chosen, chosen


def _independent(vectors: Any, others: Any) -> Any:
    """An orthonormal basis of what vectors have beside others that are orthonormal; zeros for no more.

    Twice, since once leaves rounding errors as large as what was taken away.
    """
    for _ in range(2):
        vectors = vectors - others @ (others.conj().T @ vectors)
        sizes = jnp.linalg.norm(vectors, axis=0)
        vectors = vectors / jnp.where(sizes > 0, sizes, 1.0)
        squares, rotation = jnp.linalg.eigh(vectors.conj().T @ vectors)
        good = squares > jnp.finfo(vectors.dtype).eps * len(squares)
        vectors = (vectors @ rotation) * jnp.where(good, jnp.where(good, squares, 1.0) ** -0.5, 0.0)
    return vectors
