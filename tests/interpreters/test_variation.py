"""What varies between members of a mesh: types that say so, and derivatives within shard_map."""

from contextlib import nullcontext

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=8), 1.5
XY = ("x", "y")
MESH = (2, 4)


@pytest.fixture(autouse=True)
def _devices(reference):
    with config.num_devices(8):
        yield


def mapped(f, out, check_vma=True):
    """`f(x, w)` of parts of x and the whole of w."""
    mesh = fnx.make_mesh(MESH, XY)
    return fnx.shard_map(f, mesh=mesh, in_specs=(P(XY), P()), out_specs=out, check_vma=check_vma)


# How a program is run: what a member does is traced, or, where numbers are looked at, computed at once.
WAYS = {
    "at_once": (nullcontext, lambda f: f),
    "jit": (nullcontext, fnx.jit),
    "disable_jit": (lambda: config.disable_jit(True), lambda f: f),
    "debug_nans": (lambda: fnx.debug_nans(True), lambda f: f),
}


def agrees(f, out, expected):
    for around, wrap in WAYS.values():
        with around():
            close(wrap(mapped(f, out))(X, W), expected)


def test_types_say_what_varies():
    seen = []

    def f(x, w):
        values = [
            x,
            w,
            x * w,
            jnp.zeros_like(x),
            lax.psum(x, "x"),
            lax.psum(x, XY),
            lax.axis_index("y"),
        ]
        values += [
            lax.all_gather(x, "x"),
            lax.all_gather(x, XY, to="invarying"),
            lax.pcast(w, "x", to="varying"),
        ]
        values += [x.at[0].set(w), lax.scan(lambda c, y: (c, y * w), w, x)[1]]
        seen.append([fnx.typeof(v).vma for v in values])
        assert fnx.typeof(x).mat.varying == {"x", "y"}
        return x

    both, x, y, none = frozenset(XY), frozenset("x"), frozenset("y"), frozenset()
    agrees(f, P(XY), X)
    for found in seen:
        assert found == [both, none, both, both, y, none, y, both, none, x, both, both]
    mapped(lambda x, w: seen.append(fnx.typeof(x).vma) or x, P(XY), check_vma=False)(X, W)
    assert seen[-1] == none
    assert fnx.typeof(mapped(lambda x, w: x, P(XY))(X, W)).vma == none


GRADIENTS = {
    "of_each_part": (lambda x, w: fnx.grad(lambda w: jnp.sum(w * x))(w), P(), X.sum()),
    "of_the_sum": (lambda x, w: fnx.grad(lambda w: lax.psum(jnp.sum(w * x), XY))(w), P(), X.sum()),
    "of_what_all_have": (lambda x, w: fnx.grad(lambda w: w**2)(w), P(), 2 * W),
    "of_copies": (
        lambda x, w: fnx.grad(lambda w: w**2)(lax.pcast(w, "x", to="varying"))[None],
        P("x"),
        [2 * W, 2 * W],
    ),
    "by_copies": (
        lambda x, w: fnx.grad(lambda w: lax.pcast(w, "x", to="varying") ** 2)(w),
        P(),
        4 * W,
    ),
    "gathered": (
        lambda x, w: fnx.grad(lambda x: jnp.sum(lax.all_gather(x, XY)))(x),
        P(XY),
        [8.0] * 8,
    ),
    "gathered_as_one": (
        lambda x, w: fnx.grad(lambda x: jnp.sum(lax.all_gather(x, XY, to="invarying")))(x),
        P(XY),
        [1.0] * 8,
    ),
    "twice": (
        lambda x, w: fnx.grad(fnx.grad(lambda w: jnp.sum(w**3 * x)))(w),
        P(),
        6 * W * X.sum(),
    ),
    "of_a_gradient": (
        lambda x, w: fnx.grad(lambda w: fnx.grad(lambda w: jnp.sum(w**3 * x))(w) ** 2)(w),
        P(),
        36 * W**3 * X.sum() ** 2,
    ),
    "in_a_loop": (
        lambda x, w: fnx.grad(
            lambda w: lax.scan(lambda c, _: (c + w * jnp.sum(x), None), jnp.sum(0 * x), None, 3)[0]
        )(w),
        P(),
        3 * X.sum(),
    ),
    "in_jit": (lambda x, w: fnx.jit(fnx.grad(lambda w, x: jnp.sum(w * x)))(w, x), P(), X.sum()),
    "jacrev": (lambda x, w: fnx.jacrev(lambda w: w * x)(w), P(XY), None),
    "vjp": (lambda x, w: fnx.vjp(lambda w: w * x, w)[1](x)[0], P(), (X**2).sum()),
    "linear_transpose": (
        lambda x, w: fnx.linear_transpose(lambda w: w * x, w)(x)[0],
        P(),
        (X**2).sum(),
    ),
    "of_nothing": (lambda x, w: fnx.grad(lambda w: jnp.sum(x))(w), P(), 0.0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_what_all_members_have_are_sums(name):
    f, out, expected = GRADIENTS[name]
    agrees(f, out, np.full(8, X.sum()) if expected is None else expected)


def test_without_the_check_they_are_each_members():
    f = mapped(lambda x, w: fnx.grad(lambda w: jnp.sum(w * x))(w)[None], P(XY), check_vma=False)
    close(f(X, W), X)


def test_one_function_in_several_surroundings():
    slope = fnx.jit(fnx.grad(lambda w, x: jnp.sum(w * x)))
    step = lambda c, _: (c + fnx.grad(lambda c: jnp.sum(c * 2.0))(c), None)
    copies = lambda w: lax.pcast(w, "y", to="varying")
    close(mapped(lambda x, w: slope(w, x), P())(X, W), X.sum())
    close(mapped(lambda x, w: slope(copies(w), x)[None], P("y"))(X, W), X.reshape(2, 4).sum(0))
    close(mapped(lambda x, w: slope(w, x)[None], P(XY), check_vma=False)(X, W), X)
    close(slope(W, X), X.sum())
    for given, total in [(lambda w: w, W + 4), (copies, W + 4)]:
        f = mapped(
            lambda x, w, given=given: lax.pmax(lax.scan(step, given(w), None, 2)[0], "y"), P()
        )
        close(f(X, W), total)


def test_nested_maps():
    mesh = fnx.make_mesh(MESH, XY)

    def inner(x, w):
        g = fnx.shard_map(
            lambda x: fnx.grad(lambda w: jnp.sum(w * x))(w),
            in_specs=P("y"),
            out_specs=P(),
            axis_names={"y"},
        )
        return g(x)

    f = fnx.shard_map(inner, mesh=mesh, in_specs=(P("x"), P()), out_specs=P(), axis_names={"x"})
    close(f(X, W), X.sum())
    close(fnx.jit(f)(X, W), X.sum())


# --- loops and branches ----------------------------------------------------------------------------

CARRIES = {
    "scan": lambda x, w: lax.scan(lambda c, _: (c + x[0], None), w, None, 2)[0],
    "scan_back": lambda x, w: lax.scan(lambda c, _: (lax.psum(c, XY), None), x[0], None, 2)[0],
    "while": lambda x, w: lax.while_loop(lambda c: c < 9, lambda c: c + 1 + x[0] ** 2, w),
    "fori": lambda x, w: lax.fori_loop(0, 2, lambda k, c: c + x[0], w),
    "cond": lambda x, w: lax.cond(w > 0, lambda: w, lambda: x[0]),
}


@pytest.mark.parametrize("name", CARRIES)
def test_carries_and_branches_vary_alike(name):
    with pytest.raises(TypeError, match=r"mesh axes .*lax\.pcast"):
        mapped(lambda x, w: CARRIES[name](x, w)[None], P(XY))(X, W)
    assert mapped(lambda x, w: CARRIES[name](x, w)[None], P(XY), False)(X, W).shape == (8,)


def test_a_carry_that_is_cast():
    first = lambda w: lax.pcast(w, XY, to="varying")
    f = mapped(
        lambda x, w: lax.scan(lambda c, _: (c + x[0], None), first(w), None, 2)[0][None], P(XY)
    )
    close(f(X, W), W + 2 * X)


def test_what_varies_already_is_not_cast():
    with pytest.raises(ValueError, match="already"):
        mapped(lambda x, w: lax.pcast(x, "x", to="varying"), P(XY))(X, W)


def test_cotangents_vary_no_more_than_results():
    with pytest.raises(ValueError, match="mesh axes x, y"):
        mapped(lambda x, w: fnx.vjp(lambda w: 2 * w, w)[1](x[0])[0], P())(X, W)


# --- rules of users --------------------------------------------------------------------------------


@fnx.custom_vjp
def total(x):
    """The sum over members, whose cotangent is that of each summand."""
    return lax.psum(x, XY)


total.defvjp(lambda x: (lax.psum(x, XY), None), lambda _, ct: (lax.pcast(ct, XY, to="varying"),))


@fnx.custom_vjp
def copies(w):
    """What all have, as each one's; its cotangent is the sum of theirs."""
    return lax.pcast(w, XY, to="varying")


copies.defvjp(lambda w: (lax.pcast(w, XY, to="varying"), None), lambda _, ct: (lax.psum(ct, XY),))


def _loss(x, w):
    return total(jnp.sum((copies(w) * x) ** 2)) ** 2


def test_rules_of_replicated_results_within():
    s = (X**2).sum()
    agrees(fnx.grad(_loss, 1), P(), 4 * W**3 * s**2)
    agrees(fnx.grad(_loss), P(XY), 4 * W**4 * s * X)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_rules_of_replicated_results_around(wrap):
    s, f = (X**2).sum(), mapped(_loss, P())
    dx, dw = wrap(fnx.grad(f, (0, 1)))(X, W)
    close(dw, 4 * W**3 * s**2)
    close(dx, 4 * W**4 * s * X)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_rules_may_ask_how_values_vary(wrap):
    """As those do that sum a cotangent where it varies more than the operand, within and around."""

    @fnx.custom_vjp
    def double(w):
        return 2 * lax.pcast(w, XY, to="varying")

    def bwd(w, ct):
        more = fnx.typeof(ct).vma - fnx.typeof(w).vma
        return (lax.psum(3 * ct, tuple(more)) if more else ct,)

    double.defvjp(lambda w: (double(w), w), bwd)
    loss = lambda x, w: lax.psum(jnp.sum(double(w) * x), XY)
    close(wrap(fnx.grad(mapped(loss, P()), 1))(X, W), 3 * X.sum())
    close(wrap(mapped(fnx.grad(loss, 1), P()))(X, W), 3 * X.sum())
    close(wrap(fnx.vmap(fnx.grad(mapped(loss, P()), 1)))(X[None], W + X[:1]), 3 * X.sum()[None])


def test_a_rule_that_forgets_to_sum_is_refused():
    @fnx.custom_vjp
    def f(w, x):
        return lax.psum(w * x[0], XY)

    f.defvjp(lambda w, x: (f(w, x), x), lambda x, ct: (ct * x[0], 0 * x))
    with pytest.raises(ValueError, match="bwd of f"):
        mapped(lambda x, w: fnx.grad(f)(w, x), P())(X, W)


# Results that vary by their types, or by what decides which they are.
VARYING = {
    "gathered": lambda x, w: lax.all_gather(x, XY),
    "gathered_along_one": lambda x, w: lax.all_gather(lax.psum(x, "y"), "x"),
    "said_to_vary": lambda x, w: lax.pcast(w, "x", to="varying"),
    "zeros_like": lambda x, w: jnp.zeros_like(x),
    "chosen": lambda x, w: lax.cond(x[0] > 0, lambda: w, lambda: 2 * w),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", VARYING)
def test_results_that_vary_must_be_named(name, way):
    around, wrap = WAYS[way]
    with around(), pytest.raises(ValueError, match="may differ"):
        wrap(mapped(VARYING[name], P()))(X, W)


# --- systems of linear equations ---------------------------------------------------------------------


def _solved(a, b):
    """Conjugate gradients of the sum of all members' matrices, each of which knows its own."""
    matvec = lambda v: lax.psum(a[0] @ v, XY)
    return fnx.scipy.sparse.linalg.cg(matvec, b, tol=1e-12)[0]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_systems_that_all_members_solve_as_one(check, wrap):
    m = RNG.normal(size=(8, 4, 4))
    a, b = m @ m.swapaxes(1, 2) + np.eye(4), RNG.normal(size=4)
    loss = lambda a, b: jnp.sum(_solved(a, b) ** 2)
    mesh = fnx.make_mesh(MESH, XY)
    over = lambda f, out: fnx.shard_map(
        f, mesh=mesh, in_specs=(P(XY), P()), out_specs=out, check_vma=check
    )
    x = np.linalg.solve(a.sum(0), b)
    db = np.linalg.solve(a.sum(0), 2 * x)
    da = np.broadcast_to(-np.outer(db, x), a.shape)
    got = wrap(fnx.grad(over(loss, P()), (0, 1)))(a, b)
    close(got[0], da, rtol=1e-8)
    close(got[1], db, rtol=1e-8)
    if check:
        got = wrap(over(fnx.grad(loss, (0, 1)), (P(XY), P())))(a, b)
        close(got[0], da, rtol=1e-8)
        close(got[1], db, rtol=1e-8)
        # Each member reads the one solution in its own way.
        own = lambda a, b: lax.psum(jnp.sum(_solved(a, b) * a[0, 0]), XY)
        got = wrap(over(fnx.grad(own, 1), P()))(a, b)
        close(got, np.linalg.solve(a.sum(0), a[:, 0].sum(0)), rtol=1e-8)
