"""Linear solves by structure, by iteration, and their derivatives."""

import jax
import jax.numpy as jnp
import lineax as lx

n = 20
a = jnp.eye(n) * 4 + jnp.diag(-jnp.ones(n - 1), 1) + jnp.diag(-jnp.ones(n - 1), -1)
b = jnp.sin(jnp.arange(1.0, n + 1))
x = jnp.linalg.solve(a, b)

tags = (lx.positive_semidefinite_tag, lx.symmetric_tag)
for operator, solver in (
    (lx.MatrixLinearOperator(a), lx.LU()),
    (lx.MatrixLinearOperator(a), lx.QR()),
    (lx.MatrixLinearOperator(a, tags), lx.Cholesky()),
    (lx.MatrixLinearOperator(a, tags), lx.CG(rtol=1e-12, atol=1e-12)),
    (lx.MatrixLinearOperator(a), lx.GMRES(rtol=1e-12, atol=1e-12)),
    (
        lx.TridiagonalLinearOperator(jnp.diag(a), jnp.diag(a, -1), jnp.diag(a, 1)),
        lx.AutoLinearSolver(True),
    ),
    (
        lx.FunctionLinearOperator(lambda v: a @ v, jax.eval_shape(lambda: b), tags),
        lx.CG(1e-12, 1e-12),
    ),
):
    found = jax.jit(lambda b: lx.linear_solve(operator, b, solver).value)(b)
    assert jnp.allclose(found, x, rtol=1e-8), type(solver)

loss = lambda s: jnp.sum(lx.linear_solve(lx.MatrixLinearOperator(s * a), b).value)
assert abs(jax.grad(loss)(1.0) + jnp.sum(x)) < 1e-10

tall = jnp.stack([jnp.ones(n), jnp.arange(float(n))], 1)
line = lx.linear_solve(lx.MatrixLinearOperator(tall), 3.0 + 2.0 * tall[:, 1], lx.SVD()).value
assert jnp.allclose(line, jnp.array([3.0, 2.0]))
