"""Which results are weak, of functions, derivatives, and these under checkpoint: as JAX 0.10.2 has it.

Each result is w (weak) or s (strong), in the order of the leaves.
"""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy import special


def shaped(shape, dtype="float64", weak=False):
    return fnx.ShapeDtypeStruct(shape, np.dtype(dtype), weak_type=weak)


W0, S0, I0 = shaped((), weak=True), shaped(()), shaped((), "int32")
W3, S3, W33 = shaped((3,), weak=True), shaped((3,)), shaped((3, 3), weak=True)

FUNCTIONS = [
    (jnp.isfinite, (W0,), "w"),
    (jnp.isfinite, (W3,), "w"),
    (jnp.isinf, (W3,), "s"),
    (jnp.isnan, (W3,), "w"),
    (lambda x: x > 0, (W3,), "w"),
    (lambda x: (x > 0) & (x < 1), (W3,), "s"),
    (lambda x: ~(x > 0), (W3,), "w"),
    (jnp.logical_not, (W3,), "s"),
    (jnp.any, (W3,), "s"),
    (lambda x: (x > 0) * 2.0, (W3,), "w"),
    (jnp.diag, (W3,), "w"),
    (jnp.diag, (W33,), "s"),
    (jnp.diagflat, (W3,), "s"),
    (jnp.tril, (W33,), "w"),
    (lambda x: jnp.pad(x, 1), (W3,), "w"),
    (lambda x: jnp.roll(x, 1), (W3,), "w"),
    (lambda x: jnp.full_like(x, x), (W3,), "s"),
    (lambda x: jnp.round(x, 2), (W3,), "s"),
    (lambda x: jnp.pad(x, 1, "mean"), (W3,), "w"),
    (lambda x: jnp.pad(x, 1, "linear_ramp"), (W3,), "w"),
    (jnp.angle, (W3,), "w"),
    (jnp.angle, (W0,), "s"),
    (lambda x: jnp.polydiv(x, x[:2]), (W3,), "sw"),
    (jnp.linalg.cholesky, (W33,), "w"),
    (lax.linalg.cholesky, (W33,), "w"),
    (jnp.linalg.eigh, (W33,), "ww"),
    (lax.dot, (W3, shaped((3,), "int32")), "s"),
    (lax.dot, (W3, shaped((3,), "int32", True)), "w"),
    (jnp.linalg.qr, (W33,), "ww"),
    (jnp.linalg.svd, (W33,), "www"),
    (lambda x: lax.top_k(x, 2), (W3,), "ww"),
    (fnx.nn.relu6, (I0,), "w"),
    (fnx.nn.elu, (I0,), "w"),
    (fnx.nn.softplus, (I0,), "s"),
    (special.expi, (W0,), "s"),
]

# A function, its arguments, and what is weak of jvp's (result, tangent), of vjp's (result, cotangents), and
# of the latter under checkpoint.
DERIVATIVES = [
    (lambda x: x**0.5, (W0,), "ws", "ws", "ws"),
    (lambda x: x**2.0, (W3,), "ws", "ws", "ws"),
    (lambda x: x**-1.0, (W0,), "ws", "ws", "ws"),
    (jnp.reciprocal, (W3,), "ws", "ws", "ws"),
    (jnp.cumsum, (W3,), "ss", "sw", "sw"),
    (jnp.cumprod, (W3,), "ss", "sw", "sw"),
    (lax.cummax, (W3,), "ss", "ss", "ss"),
    (lambda x: jnp.pad(x, 1), (W3,), "ww", "ws", "ws"),
    (lambda x: jnp.roll(x, 1), (W3,), "ww", "ws", "ws"),
    (jnp.diag, (W3,), "ww", "ws", "ws"),
    (jnp.triu, (W33,), "ww", "ww", "ww"),
    (jnp.linalg.norm, (W3,), "ss", "sw", "sw"),
    (special.logsumexp, (W0,), "ss", "ss", "ss"),
    (jnp.deg2rad, (W3,), "ss", "ss", "ss"),
    (jnp.log2, (W0,), "ss", "ss", "ss"),
    (lambda x: jnp.heaviside(x, 0.5), (W3,), "ss", "sw", "sw"),
    (jnp.nansum, (W3,), "ss", "sw", "sw"),
    (lambda x: jnp.linspace(0.0, x, 4), (W0,), "ss", "sw", "sw"),
    (lambda x: x[1:], (W3,), "ww", "ws", "ws"),
    (lambda x: x[0] + x[1], (W3,), "ww", "ws", "ws"),
    (lambda x: x * x[0], (W3,), "ww", "ww", "ww"),
    (jnp.add, (W0, S0), "ss", "sws", "sws"),
    (jnp.multiply, (W3, S3), "ss", "sws", "sws"),
    (jnp.dot, (W3, S3), "ss", "sss", "sss"),
    (jnp.matmul, (W3, S3), "ss", "sss", "sss"),
    (lax.add, (W0, S0), "ss", "sss", "sss"),
    (lax.max, (W0, S0), "ss", "sss", "sss"),
    (jnp.maximum, (W0, S0), "ss", "sws", "sws"),
    (jnp.power, (W0, S0), "ss", "sws", "sws"),
    (lambda x, y: jnp.stack([x, y]), (W0, S0), "ss", "sws", "sws"),
    (lambda x, y: jnp.einsum("i,i", x, y), (W3, S3), "ss", "sss", "sss"),
    (lax.rem, (W0, S0), "sw", "sss", "sws"),
    (lambda x, y: lax.complex(x, x), (W0, S0), "ww", "wws", "wws"),
]


def weak(f, args) -> str:
    leaves = fnx.tree.leaves(fnx.eval_shape(f, *args))
    return "".join(["w" if leaf.weak_type else "s" for leaf in leaves])


def pulled(f):
    def g(*args):
        out, pull = fnx.vjp(f, *args)
        return out, pull(out)

    return g


@pytest.mark.parametrize(("f", "args", "expected"), FUNCTIONS)
def test_results(f, args, expected):
    assert weak(f, args) == expected
    assert weak(fnx.jit(f), args) == expected


@pytest.mark.parametrize(("f", "args", "tangent", "back", "kept"), DERIVATIVES)
def test_derivatives(f, args, tangent, back, kept):
    assert weak(lambda *xs: fnx.jvp(f, xs, xs), args) == tangent
    assert weak(pulled(f), args) == back
    assert weak(pulled(fnx.checkpoint(f)), args) == kept


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (lambda x: jnp.sum(x * x[::-1]) + jnp.sum(x[:2]), False),
        (lambda x: jnp.sum(x[:2]) + jnp.sum(x * x[::-1]), True),
    ],
)
def test_cotangents_are_as_weak_as_the_first_that_came(order, expected):
    assert fnx.eval_shape(fnx.grad(order), W3).weak_type is expected


def test_tangents_of_powers_stay_strong_on_the_way_through_a_second_derivative():
    power = lambda x: 2.0 ** jnp.tanh(x)
    push = lambda f: lambda x: fnx.linearize(f, x)[1](x)
    pull = lambda f: lambda x: pulled(f)(x)[1][0]
    assert weak(pull(lambda x: fnx.jvp(power, (x,), (x,))[1]), (W3,)) == "w"
    assert weak(push(pull(power)), (W3,)) == "w"


def test_solvers_are_as_weak_as_their_arguments():
    def solve(x):
        scale = 2 + jnp.sum(jnp.sin(x))
        by = lambda _, rhs: rhs / scale
        return lax.custom_linear_solve(lambda y: y * scale, jnp.cos(x), by, by)

    assert weak(solve, (W3,)) == "w"
    assert solve(lax.broadcast(0.5, (3,))).weak_type
    assert weak(lambda x: fnx.linearize(fnx.grad(solve), x)[1](x), (W0,)) == "w"


@pytest.mark.parametrize("jacobian", [fnx.jacfwd, fnx.jacrev])
def test_derivatives_of_jacobians_are_weak_where_the_argument_is(jacobian):
    assert weak(fnx.grad(jacobian(jnp.sin)), (W0,)) == "w"
    assert weak(fnx.grad(jacobian(jnp.sin)), (S0,)) == "s"
    assert weak(jacobian(lambda x: x + np.float64(1)), (W0,)) == (
        "s" if jacobian is fnx.jacfwd else "w"
    )
