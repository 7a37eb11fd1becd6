"""What programs ask of NumPy: functions of stacks of matrices, each of which can be copied as it stands.

Each uses NumPy, the other functions here that it names, and SciPy where it imports it.
"""

import numpy as np


def cholesky(a):
    """The lower factor of each matrix; nan where it is not positive definite."""
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return np.tril(np.full_like(a, np.nan))
        return np.stack([cholesky(x) for x in a])


def triangular_solve(
    a, b, left_side=True, lower_triangle=True, transpose_a=False, conjugate_a=False, unit_diagonal=False
):  # fmt: skip
    """x of a @ x = b, or of x @ a = b, of which only a triangle of each a is read."""
    a = np.tril(a) if lower_triangle else np.triu(a)
    a = np.conj(a) if conjugate_a else a
    lower = lower_triangle != transpose_a
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    if not left_side:
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x, n = np.array(b), a.shape[-1]
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        x[..., i, :] -= (a[..., i : i + 1, done] @ x[..., done, :])[..., 0, :]
        if not unit_diagonal:
            x[..., i, :] /= a[..., i, i, None]
    return x if left_side else np.swapaxes(x, -1, -2)


def lu(a):
    """L and U in one matrix, pivots, and the order of the rows."""
    rows, columns = a.shape[-2:]
    lead, count = a.shape[:-2], min(rows, columns)
    found, pivots = np.array(a), np.zeros((*lead, count), np.int32)
    for at in np.ndindex(lead):
        x, p = found[at], pivots[at]
        for k in range(count):
            p[k] = k + np.argmax(np.abs(x.real[k:, k]) + np.abs(x.imag[k:, k]))
            x[[k, p[k]]] = x[[p[k], k]]
            if x[k, k] != 0:
                x[k + 1 :, k] /= x[k, k]
            x[k + 1 :, k + 1 :] -= np.outer(x[k + 1 :, k], x[k, k + 1 :])
    return found, pivots, lu_pivots_to_permutation(pivots, rows)


def lu_pivots_to_permutation(pivots, permutation_size):
    """The order of the rows that exchanges lead to."""
    found = np.empty((*pivots.shape[:-1], permutation_size), np.int32)
    found[...] = np.arange(permutation_size)
    for at in np.ndindex(pivots.shape[:-1]):
        order, swaps = found[at], pivots[at]
        for k, p in enumerate(swaps):
            order[k], order[p] = order[p], order[k]
    return found


def lu_solve(a, factors, pivots, b, op="n"):
    """x of a @ x = b, or of its transpose or adjoint, by the factors of a."""
    order = lu_pivots_to_permutation(pivots, a.shape[-1])[..., None]
    conjugate = op == "c"
    if op == "n":
        rows = np.take_along_axis(b, np.broadcast_to(order, b.shape), -2)
        y = triangular_solve(factors, rows, unit_diagonal=True)
        return triangular_solve(factors, y, lower_triangle=False)
    y = triangular_solve(factors, b, True, False, True, conjugate)
    y = triangular_solve(factors, y, True, True, True, conjugate, True)
    x = np.empty_like(y)
    np.put_along_axis(x, np.broadcast_to(order, b.shape).astype(np.int64), y, -2)
    return x


def solve(a, b):
    """x of a @ x = b; infinities and nan where a is singular."""
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        pass
    factors, pivots, _ = lu(a)
    return lu_solve(a, factors, pivots, b)


def tridiagonal_solve(dl, d, du, b):
    """x of the tridiagonal systems with these diagonals, with pivoting."""
    n = d.shape[-1]
    a = np.zeros((*d.shape, n), d.dtype)
    k = np.arange(n)
    a[..., k, k] = d
    a[..., k[1:], k[:-1]] = dl[..., 1:]
    a[..., k[:-1], k[1:]] = du[..., :-1]
    return solve(a, b)


def qr(a, full_matrices=True, pivoting=False):
    """Q and R, and the order of the columns if these are exchanged."""
    if not pivoting:
        return tuple(np.linalg.qr(a, "complete" if full_matrices else "reduced"))
    import scipy.linalg

    mode = "full" if full_matrices else "economic"
    lead = a.shape[:-2]
    made = [scipy.linalg.qr(x, mode=mode, pivoting=True) for x in a.reshape(-1, *a.shape[-2:])]
    return tuple([np.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*made)])


def svd(a, full_matrices=True, compute_uv=True):
    """Singular values, then vectors."""
    if not compute_uv:
        return np.linalg.svd(a, full_matrices, False)
    u, s, v = np.linalg.svd(a, full_matrices)
    return s, u, v


def eigh(a, lower_triangle=True):
    """Eigenvectors and eigenvalues of Hermitian matrices."""
    w, v = np.linalg.eigh(a, "L" if lower_triangle else "U")
    return v, w


def eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=True):
    """Eigenvalues, then left and right eigenvectors where asked for."""
    if not compute_left_eigenvectors:
        if not compute_right_eigenvectors:
            return np.linalg.eigvals(a)
        return tuple(np.linalg.eig(a))
    import scipy.linalg

    lead, right = a.shape[:-2], compute_right_eigenvectors
    made = [scipy.linalg.eig(x, left=True, right=right) for x in a.reshape(-1, *a.shape[-2:])]
    return tuple([np.stack(parts).reshape(*lead, *parts[0].shape) for parts in zip(*made)])


def schur(a, compute_schur_vectors=True):
    """The Schur form, and its vectors where asked for."""
    import scipy.linalg

    output = "complex" if np.iscomplexobj(a) else "real"
    made = [scipy.linalg.schur(x, output=output) for x in a.reshape(-1, *a.shape[-2:])]
    found = [np.stack(parts).reshape(a.shape) for parts in zip(*made)]
    return tuple(found) if compute_schur_vectors else found[0]


def geqrf(a):
    """R above, and the reflections of Q below the diagonal; their factors."""
    h, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(h, -1, -2), tau


def gehrd(a):
    """The Hessenberg form, with reflections below it; their factors."""
    import scipy.linalg

    if a.shape[-1] < 2:
        return a, np.zeros((*a.shape[:-2], 0), a.dtype)
    (routine,) = scipy.linalg.get_lapack_funcs(("gehrd",), (a,))
    made = [routine(x)[:2] for x in a.reshape(-1, *a.shape[-2:])]
    return tuple([np.stack(x).reshape(*a.shape[:-2], *x[0].shape) for x in zip(*made)])


def cholesky_tangent(l, t):
    """The tangent of the factor l of matrices whose tangents have the lower triangle t."""
    s = np.tril(t) + np.swapaxes(np.tril(t, -1), -1, -2)
    x = triangular_solve(l, np.swapaxes(triangular_solve(l, s), -1, -2))
    half = np.tril(x)
    k = np.arange(x.shape[-1])
    half[..., k, k] /= 2
    return np.tril(l) @ half


def cholesky_cotangent(l, t):
    """The transpose of `cholesky_tangent`."""
    l = np.tril(l)
    q = np.tril(np.swapaxes(l, -1, -2) @ np.tril(t))
    k = np.arange(q.shape[-1])
    q[..., k, k] /= 2
    w = triangular_solve(l, triangular_solve(l, q, transpose_a=True), left_side=False)
    return np.tril(w) + np.swapaxes(np.triu(w, 1), -1, -2)


def sytrd(a, lower_triangle=True):
    """A tridiagonal form with reflections beside it, its diagonals, and their factors."""
    import scipy.linalg

    name = "hetrd" if np.iscomplexobj(a) else "sytrd"
    (routine,) = scipy.linalg.get_lapack_funcs((name,), (a,))
    made = [routine(x, lower=lower_triangle)[:4] for x in a.reshape(-1, *a.shape[-2:])]
    return tuple([np.stack(x).reshape(*a.shape[:-2], *x[0].shape) for x in zip(*made)])


def fft(x, fft_type, fft_lengths):
    """Fourier transforms over the last axes."""
    axes = tuple(range(x.ndim - len(fft_lengths), x.ndim))
    function = getattr(np.fft, fft_type + "n")
    if fft_type == "irfft":
        return function(x, s=fft_lengths, axes=axes)
    return function(x, axes=axes)


def dot_general(x, y, contracted, batched, dtype):
    """Products of matrices: sums over the axes `contracted`, for each index of the axes `batched`."""
    sides = []
    for z, c, b, last in (
        (x, contracted[0], batched[0], True),
        (y, contracted[1], batched[1], False),
    ):
        free = [k for k in range(z.ndim) if k not in (*c, *b)]
        order = (*b, *free, *c) if last else (*b, *c, *free)
        lead, many = [z.shape[k] for k in b], [z.shape[k] for k in free]
        summed = int(np.prod([z.shape[k] for k in c], dtype=np.int64))
        count = int(np.prod(many, dtype=np.int64))
        shape = (*lead, count, summed) if last else (*lead, summed, count)
        sides.append((z.transpose(order).reshape(shape).astype(dtype, copy=False), lead, many))
    (left, lead, rows), (right, _, columns) = sides
    return (left @ right).reshape(*lead, *rows, *columns)
