"""Samples of linear algebra."""

import numpy as np
from samples import Sample

from fnx.ops.linalg.eigen import QR, SVD, Eig, Eigh, Schur
from fnx.ops.linalg.factorizations import (
    Determinant,
    LUPivotsToPermutation,
    LUSolve,
    TriangularSolve,
    cholesky,
    lu,
    pseudo_inverse,
    solve,
)
from fnx.ops.linalg.householder import Gehrd, Geqrf, Sytrd
from fnx.ops.linalg.triangular import CholeskyCotangent, CholeskyTangent
from fnx.ops.linalg.tridiagonal import tridiagonal_solve

_rng = np.random.default_rng(11)
_LU = np.array([[4.0, 1.0, 2.0], [0.5, 3.0, 1.0], [0.25, 0.5, 2.0]])


def _f(*shape, dtype="float64"):
    x = _rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * _rng.normal(size=shape)
    return x.astype(dtype)


def _positive(*shape, dtype="float64"):
    a = _f(*shape, shape[-1], dtype=dtype)
    return a @ a.conj().swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)


def _triangular():
    for dtype in ("float64", "complex128"):
        a = _positive(3, dtype=dtype)
        for flags in np.ndindex(2, 2, 2, 2, 2):
            left, low, transposed, conjugated, unit = map(bool, flags)
            if conjugated and dtype == "float64":
                continue
            b = _f(3, 2, dtype=dtype) if left else _f(2, 3, dtype=dtype)
            yield Sample(TriangularSolve(left, low, transposed, conjugated, unit), (a, b))


def _factorizations(dtype):
    yield Sample(cholesky, (_positive(3, dtype=dtype),))
    yield Sample(cholesky, (_positive(2, 3, dtype=dtype),))
    for shape in ((3, 3), (4, 3), (3, 4), (2, 3, 3)):
        yield Sample(lu, (_f(*shape, dtype=dtype),))
        yield Sample(QR(False), (_f(*shape, dtype=dtype),))
        yield Sample(SVD(False, False), (_f(*shape, dtype=dtype),))
    yield Sample(QR(True), (_f(3, 4, dtype=dtype),))
    yield Sample(solve, (_f(3, 3, dtype=dtype), _f(3, 2, dtype=dtype)))
    yield Sample(solve, (_f(2, 3, 3, dtype=dtype) + 3 * np.eye(3), _f(2, 3, 1, dtype=dtype)))
    yield Sample(Eig(False, False), (_f(3, 3, dtype=dtype),))
    yield Sample(QR(True), (_f(4, 2, dtype=dtype),))
    yield Sample(QR(False, True), (_f(4, 3, dtype=dtype),))
    a = _f(4, 3, dtype=dtype)
    yield Sample(pseudo_inverse, (a, np.linalg.pinv(a)), diff=(False, False))
    yield Sample(
        tridiagonal_solve,
        (_f(5, dtype=dtype), 4 + _f(5, dtype=dtype), _f(5, dtype=dtype), _f(5, 2, dtype=dtype)),
    )


def _no_derivatives():
    a = _f(3, 3)
    yield Sample(Schur(), (a,), diff=(False,))
    yield Sample(Schur(False), (_f(3, 3, dtype="complex128"),), diff=(False,))
    yield Sample(Eig(True, True), (a,), diff=(False,))  # LAPACK chooses their signs by roundoff
    for packed in (Geqrf(), Gehrd(), Sytrd(), Sytrd(False)):
        yield Sample(packed, (a,), diff=(False,))
        yield Sample(packed, (_f(2, 3, 3, dtype="complex128"),), diff=(False,))
    yield Sample(Geqrf(), (_f(4, 2),), diff=(False,))
    yield Sample(SVD(True), (_f(4, 3),), diff=(False,))
    yield Sample(LUPivotsToPermutation(4), (np.array([1, 3, 2], np.int32),))


_DET = _f(2, 5, 5)
SAMPLES = [
    *_triangular(),
    Sample(TriangularSolve(True, True), (_positive(2, 3), _f(2, 3, 4))),
    *_factorizations("float64"),
    *_factorizations("complex128"),
    # Vectors of complex matrices are differentiable up to phases; differences see the phases.
    *(Sample(SVD(False), (_f(*s),)) for s in ((3, 3), (4, 3), (3, 4), (2, 3, 3))),
    Sample(Eigh(), (_positive(3),)),
    Sample(Eigh(False), (_positive(2, 3),)),
    Sample(Eigh(), (_positive(3, dtype="complex128"),), diff=(False,)),
    Sample(Eig(False, True), (_f(4, 4),)),
    Sample(
        LUSolve("n"),
        (_f(3, 3), _LU, np.array([0, 2, 2], np.int32), _f(3, 2)),
        diff=(False, False, False, True),
    ),
    Sample(
        LUSolve("t"),
        (_f(3, 3), _LU, np.array([0, 2, 2], np.int32), _f(3, 2)),
        diff=(False, False, False, True),
    ),
    Sample(
        Determinant(),
        (_DET, *lu.impl(_DET)[:2]),
        diff=(False, False, False),  # the factors would have to change with the matrix
    ),
    *(
        Sample(prim, (np.linalg.cholesky(_positive(*n)), _f(*n, n[-1])))
        for prim in (CholeskyTangent(), CholeskyCotangent())
        for n in ((3,), (2, 12), (35,))
    ),
    Sample(Determinant(log=True), (_DET, *lu.impl(_DET)[:2]), diff=(False, False, False)),
    *_no_derivatives(),
    *(
        Sample(p, (_positive(3).astype("float32"),))
        for p in (cholesky, lu, QR(False), SVD(False, False))
    ),
    *(Sample(p, (np.zeros((2, 0, 0)),)) for p in (cholesky, lu, QR(False), SVD(False), Eigh())),
]
