"""Linear systems whose matrix is in parts: derivatives of solutions, from outside of the members."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.scipy.sparse.linalg import bicgstab, cg
from fnx.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
M = RNG.normal(size=(4, 3, 3))
A, B = M @ M.swapaxes(1, 2) + np.eye(3), RNG.normal(size=3)
OWN = A[:, 0]  # by which each member reads the solution


def symmetric(a, b):
    return cg(lambda v: lax.psum(a[0] @ v, "x"), b, tol=1e-13)[0]


def unsymmetric(a, b):
    matvec = lambda v: lax.psum(a[0] @ v + a[0, 0] * v[0], "x")
    solve = lambda matvec, b: bicgstab(matvec, b, tol=1e-13)[0]
    return lax.custom_linear_solve(matvec, b, solve, solve)


def whole(a, solve):
    """The matrix of the system."""
    m = a.sum(0)
    if solve is unsymmetric:
        m[:, 0] += a[:, 0].sum(0)
    return m


def by_members(solve, wrap, check):
    """The gradient of what members make of the solution, each in its own way."""

    def own(a, b):
        return lax.psum(solve(a, b) @ a[0, 0], "x") + jnp.sum(solve(a, b) ** 2)

    f = fnx.shard_map(
        own,
        mesh=fnx.make_mesh((4,), ("x",)),
        in_specs=(P("x"), P()),
        out_specs=P(),
        check_vma=check,
    )
    return wrap(fnx.grad(f, (0, 1)))(A, B)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["at_once", "jit"])
@pytest.mark.parametrize("team", [True, False], ids=["team", "in_turn"])
@pytest.mark.parametrize(
    ("solve", "check"), [(symmetric, True), (symmetric, False), (unsymmetric, True)]
)
def test_members_that_read_one_solution_differently(runs, solve, check, team, wrap):
    m = whole(A, solve)
    x = np.linalg.solve(m, B)
    back = np.linalg.solve(m.T, OWN.sum(0) + 2 * x)
    with config.backend("cpu" if team else "reference"):
        da, db = by_members(solve, wrap, check)
    close(db, back, rtol=1e-8)
    minus = np.outer(back, x)
    expected = np.stack([-minus] * 4)
    expected[:, 0] += x
    if solve is unsymmetric:
        expected[:, 0] -= back * x[0]
    close(da, expected, rtol=1e-8)
    assert bool(runs) is team


@pytest.mark.parametrize("team", [True, False], ids=["team", "in_turn"])
def test_a_transposed_system_that_members_do_not_solve_as_one_is_refused(team):
    # Without types, the transpose of `matvec` is that of each member's copy.
    with (
        config.backend("cpu" if team else "reference"),
        pytest.raises(TypeError, match="check_vma"),
    ):
        by_members(unsymmetric, fnx.jit, False)


def test_systems_of_a_vector_in_parts_stay_those_of_all_parts(runs):
    ring = [(k, (k + 1) % 4) for k in range(4)]

    def own(a, b):
        matvec = lambda v: 5 * v + 0.1 * a[0] @ v + lax.ppermute(v, "x", ring)

        def solve(matvec, b):
            return lax.fori_loop(0, 120, lambda _, x: x + 0.15 * (b - matvec(x)), 0 * b)

        return lax.custom_linear_solve(matvec, b[0], solve, solve)[None]

    f = fnx.shard_map(own, mesh=fnx.make_mesh((4,), ("x",)), in_specs=P("x"), out_specs=P("x"))
    bs, weights = RNG.normal(size=(2, 4, 3))
    m = 5 * np.eye(12) + np.kron(np.roll(np.eye(4), 1, 0), np.eye(3))
    for k in range(4):
        m[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] += 0.1 * A[k]
    x, back = np.linalg.solve(m, bs.ravel()), np.linalg.solve(m.T, weights.ravel())
    da, db = fnx.grad(lambda a, b: jnp.sum(f(a, b) * weights), (0, 1))(A, bs)
    close(db.ravel(), back, rtol=1e-8)
    parts = zip(back.reshape(4, 3), x.reshape(4, 3))
    close(da, np.stack([-0.1 * np.outer(y, z) for y, z in parts]), rtol=1e-8)
    assert runs


def test_a_batch_of_right_hand_sides_needs_them_all():
    mesh = fnx.make_mesh((4,), ("x",))
    f = fnx.shard_map(symmetric, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    bs = RNG.normal(size=(5, 3))
    close(fnx.vmap(f, (None, 0))(A, bs), np.linalg.solve(A.sum(0), bs.T).T, rtol=1e-8)
