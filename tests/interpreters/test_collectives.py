"""Collectives over named axes: against NumPy, against functions written out for all members, in all
transformations, with groups, several names, and errors."""

import numpy as np
import pytest
from agreement import close
from named_axes import RING, RNG, N, X, mapped, spread

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.errors import InvalidValue, ShapeError, UnboundAxis

pytestmark = pytest.mark.usefixtures("reference")


GROUPS = [[0, 2], [3, 1]]


def by_group(fn):
    """What `fn`, of the members of one group, gives each member."""

    def of_all(x):
        out = [None] * N
        for group in GROUPS:
            for k, row in zip(group, fn(x[group])):
                out[k] = row
        return np.stack(out)

    return of_all


def scatter(x, axis):
    """Member k gets index k of the sum over members along an axis."""
    return np.moveaxis(x.sum(0), axis, 0)


def exchange(x, split, concat, tiled):
    """all_to_all: parts from member j lie at j."""
    n = len(x)
    out = []
    for k in range(n):
        parts = [np.split(x[j], n, split)[k] for j in range(n)]
        if tiled:
            out.append(np.concatenate(parts, concat))
        else:
            out.append(np.stack([p.squeeze(split) for p in parts], concat))
    return np.stack(out)


def tiles(x, axis):
    return np.broadcast_to(
        np.concatenate(list(x), axis), (len(x), *np.concatenate(list(x), axis).shape)
    )


# A collective of one member, and the same in NumPy of all members.
CASES = {
    "psum": (lambda x: lax.psum(x, "i"), lambda x: spread(x.sum(0))),
    "pmean": (lambda x: lax.pmean(x, "i"), lambda x: spread(x.mean(0))),
    "pmax": (lambda x: lax.pmax(x, "i"), lambda x: spread(x.max(0))),
    "pmin": (lambda x: lax.pmin(x, "i"), lambda x: spread(x.min(0))),
    "ring": (lambda x: lax.ppermute(x, "i", RING), lambda x: np.roll(x, 1, 0)),
    "some": (
        lambda x: lax.ppermute(x, "i", [(2, 0), (1, 3)]),
        lambda x: np.stack([x[2], 0 * x[0], 0 * x[0], x[1]]),
    ),
    "pshuffle": (lambda x: lax.pshuffle(x, "i", [2, 0, 3, 1]), lambda x: x[[2, 0, 3, 1]]),
    "pbroadcast": (lambda x: lax.pbroadcast(x, "i", 2), lambda x: spread(x[2])),
    "all_gather": (lambda x: lax.all_gather(x, "i"), spread),
    "all_gather -1": (
        lambda x: lax.all_gather(x, "i", axis=-1),
        lambda x: spread(np.moveaxis(x, 0, -1)),
    ),
    "all_gather tiled": (
        lambda x: lax.all_gather(x, "i", axis=1, tiled=True),
        lambda x: tiles(x, 1),
    ),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i"), lambda x: scatter(x, 0)),
    "psum_scatter tiled": (
        lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
        lambda x: np.stack(np.split(x.sum(0), N, 1)),
    ),
    "all_to_all": (
        lambda x: lax.all_to_all(x, "i", 0, 1),
        lambda x: exchange(x, 0, 1, False),
    ),
    "all_to_all back": (
        lambda x: lax.all_to_all(x, "i", 0, 0),
        lambda x: exchange(x, 0, 0, False),
    ),
    "all_to_all tiled": (
        lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
        lambda x: exchange(x, 1, 0, True),
    ),
    "all_to_all tiled, same axis": (
        lambda x: lax.all_to_all(x, "i", 1, 1, tiled=True),
        lambda x: exchange(x, 1, 1, True),
    ),
    "pswapaxes": (lambda x: lax.pswapaxes(x, "i", 0), lambda x: np.swapaxes(x, 0, 1)),
    "pcast": (lambda x: lax.pcast(x, "i", to="varying"), lambda x: x),
    "axis_index": (lambda x: x + lax.axis_index("i"), lambda x: x + np.arange(N)[:, None, None]),
    "axis_size": (lambda x: x * lax.axis_size("i"), lambda x: x * N),
    "groups psum": (
        lambda x: lax.psum(x, "i", axis_index_groups=GROUPS),
        by_group(lambda x: [x.sum(0)] * 2),
    ),
    "groups pmean": (
        lambda x: lax.pmean(x, "i", axis_index_groups=GROUPS),
        by_group(lambda x: [x.mean(0)] * 2),
    ),
    "groups pmax": (
        lambda x: lax.pmax(x, "i", axis_index_groups=GROUPS),
        by_group(lambda x: [x.max(0)] * 2),
    ),
    "groups all_gather": (
        lambda x: lax.all_gather(x, "i", axis_index_groups=GROUPS, axis=1),
        by_group(lambda x: [np.moveaxis(x, 0, 1)] * 2),
    ),
    "groups psum_scatter": (
        lambda x: lax.psum_scatter(x, "i", axis_index_groups=GROUPS, tiled=True),
        by_group(lambda x: np.split(x.sum(0), 2)),
    ),
    "groups all_to_all": (
        lambda x: lax.all_to_all(x, "i", 1, 0, axis_index_groups=GROUPS, tiled=True),
        by_group(lambda x: exchange(x, 1, 0, True)),
    ),
}
each = pytest.mark.parametrize(("one", "all_members"), CASES.values(), ids=CASES)


@each
def test_value(one, all_members):
    close(mapped(one)(X), all_members(X))


@each
def test_the_same_in_and_around_jit(one, all_members):
    expected = all_members(X)
    close(fnx.jit(mapped(one))(X), expected)
    close(mapped(fnx.jit(one))(X), expected)
    close(mapped(lambda x: fnx.jit(fnx.jit(one))(2.0 * x / 2.0))(X), expected)


@each
def test_a_value_without_a_batch_axis_is_the_same_in_all(one, all_members):
    x = X[1]
    expected = all_members(np.stack([x] * N))
    close(mapped(lambda _: one(jnp.asarray(x)))(jnp.zeros(N)), expected)
    close(mapped(one, in_axes=None, axis_size=N)(x), expected)
    close(mapped(lambda _: fnx.jit(one)(jnp.asarray(x)))(jnp.zeros(N)), expected)


@each
def test_members_along_another_axis_and_beside_another_vmap(one, all_members):
    close(mapped(one, in_axes=2)(np.moveaxis(X, 0, 2)), all_members(X))
    both = np.stack([X, 2 * X, -X])
    expected = np.stack([all_members(x) for x in both])
    close(fnx.vmap(mapped(one))(both), expected)
    inside = mapped(fnx.vmap(one))(np.swapaxes(both, 0, 1))
    close(np.swapaxes(np.asarray(inside), 0, 1), expected)
    named = mapped(fnx.vmap(one, axis_name="k"), out_axes=1)(np.swapaxes(both, 0, 1))
    close(named, expected)


@each
def test_derivatives(one, all_members):
    """Against central differences of the NumPy function, and of each other."""
    weights = RNG.normal(size=all_members(X).shape)

    def total(x):
        return jnp.sum(mapped(one)(jnp.sin(x)) * weights)

    direction, eps = RNG.normal(size=X.shape), 1e-6
    numbers = [np.sum(all_members(np.sin(X + s * eps * direction)) * weights) for s in (1, -1)]
    slope = (numbers[0] - numbers[1]) / (2 * eps)
    close(fnx.jvp(total, (X,), (direction,))[1], slope, rtol=1e-6, atol=1e-6)
    gradient = fnx.grad(total)(X)
    close(np.sum(np.asarray(gradient) * direction), slope, rtol=1e-6, atol=1e-6)
    close(fnx.jit(fnx.grad(total))(X), gradient)
    close(fnx.grad(lambda x: jnp.sum(mapped(fnx.jit(one))(jnp.sin(x)) * weights))(X), gradient)


@each
def test_the_gradient_in_a_member_is_that_of_all_members_losses(one, all_members):
    """A gradient taken inside is, as JAX's, that of the sum of what all members compute."""
    weights = RNG.normal(size=all_members(X).shape)

    def loss(x, w):
        return jnp.sum(one(jnp.sin(x)) * w)

    outside = fnx.grad(lambda x: jnp.sum(mapped(loss)(x, weights)))(X)
    close(mapped(fnx.grad(loss))(X, weights), outside)
    close(mapped(fnx.jit(fnx.grad(loss)))(X, weights), outside)
    close(mapped(fnx.grad(fnx.checkpoint(loss)))(X, weights), outside)


def test_extrema_share_their_gradient():
    x = jnp.array([1.0, 3.0, 3.0])
    g = fnx.grad(lambda x: mapped(lambda v: lax.pmax(v, "i"))(x)[0])(x)
    close(g, [0.0, 0.5, 0.5])


# --- sizes and indices -------------------------------------------------------------------------


def test_sums_of_python_numbers_are_known_while_tracing():
    @fnx.jit
    @mapped
    def f(x):
        n = lax.psum(1, "i")
        assert n == N
        assert type(n) is int
        assert lax.psum(0.5, "i") == 2.0
        assert lax.psum(True, "i") == N
        assert isinstance(lax.psum(np.ones(3), "i"), np.ndarray)
        return x.reshape(n, -1).sum(0)

    close(f(X), X.reshape(N, N, -1).sum(1))


def test_one_jitted_function_under_axes_of_different_sizes():
    f = fnx.jit(lambda x: x * lax.psum(1, "i") + lax.axis_index("i"))
    for n in (2, 3, 2):
        close(mapped(f)(np.ones(n)), n + np.arange(n))
    with pytest.raises(UnboundAxis):
        f(1.0)


def test_one_loop_body_under_axes_of_different_sizes():
    def body(c, _):
        return c * lax.axis_size("i") + lax.psum(c, "i"), lax.axis_index("i")

    for n in (2, 3, 2):
        last, ys = mapped(lambda x: lax.scan(body, x, None, length=2))(np.ones(n))
        close(last, np.full(n, 4.0 * n * n))
        close(ys, np.broadcast_to(np.arange(n)[:, None], (n, 2)))


@pytest.mark.parametrize(
    "name", ["psum", "ring", "all_to_all tiled", "groups all_gather", "axis_index"]
)
def test_native_code(name):
    one, all_members = CASES[name]
    with config.backend("cpu"):
        close(fnx.jit(mapped(one))(X), all_members(X))


def test_dtypes():
    assert mapped(lambda x: lax.axis_index("i"))(X).dtype == np.int32
    assert mapped(lambda x: lax.psum(x, "i"))(X.astype(np.float32)).dtype == np.float32
    counts = mapped(lambda x: lax.psum(x > 0, "i"))(X)
    assert counts.dtype == np.int32  # as JAX's
    close(counts, spread((X > 0).sum(0)))
    means = mapped(lambda x: lax.pmean(x, "i"))(np.array([1, 2]))
    close(means, [1.5, 1.5])


def test_pytrees():
    out = mapped(lambda x: lax.psum({"a": x, "b": (x[0], 1)}, "i"))(X)
    close(out["a"], spread(X.sum(0)))
    close(out["b"][0], spread(X[:, 0].sum(0)))
    close(out["b"][1], np.full(N, N))
    a, b = mapped(lambda x: lax.ppermute((x, x[0]), "i", RING))(X)
    close(a, np.roll(X, 1, 0))
    close(b, np.roll(X[:, 0], 1, 0))


# --- several names -----------------------------------------------------------------------------

Y = RNG.normal(size=(2, 3, 6, 12))


def nested(f):
    return fnx.vmap(fnx.vmap(f, axis_name="j"), axis_name="i")


def flat(f):
    """The same over one axis for both."""

    def run(x):
        out = np.asarray(fnx.vmap(f, axis_name="k")(x.reshape(6, *x.shape[2:])))
        return out.reshape(2, 3, *out.shape[1:])

    return run


@pytest.mark.parametrize(
    "f",
    [
        lax.psum,
        lax.pmean,
        lax.pmax,
        lambda x, n: lax.axis_index(n) + lax.axis_size(n) * x,
        lax.all_gather,
        lambda x, n: lax.all_gather(x, n, axis=1),
        lambda x, n: lax.all_gather(x, n, axis=1, tiled=True),
        lax.psum_scatter,
        lambda x, n: lax.psum_scatter(x, n, scatter_dimension=1, tiled=True),
        lambda x, n: lax.ppermute(x, n, [(0, 5), (5, 2), (1, 1)]),
        lambda x, n: lax.pshuffle(x, n, [5, 4, 3, 0, 1, 2]),
        lambda x, n: lax.all_to_all(x, n, 0, 1),
        lambda x, n: lax.all_to_all(x, n, 1, 0, tiled=True),
    ],
)
def test_two_names_are_like_one_axis(f):
    expected = flat(lambda x: f(x, "k"))(Y)
    close(nested(lambda x: f(x, ("i", "j")))(Y), expected)
    close(fnx.jit(nested(lambda x: f(x, ("i", "j"))))(Y), expected)


def test_each_of_two_names():
    close(nested(lambda x: lax.psum(x, "i"))(Y), np.broadcast_to(Y.sum(0), Y.shape))
    close(nested(lambda x: lax.psum(x, "j"))(Y), np.broadcast_to(Y.sum(1, keepdims=True), Y.shape))
    close(nested(fnx.jit(lambda x: lax.psum(lax.pmax(x, "j"), "i")))(Y)[1, 1], Y.max(1).sum(0))
    shadowed = fnx.vmap(fnx.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")(Y)
    close(shadowed, np.broadcast_to(Y.sum(1, keepdims=True), Y.shape))


def test_positional_axes_among_the_names():
    close(mapped(lambda x: lax.psum(x, ("i", 0)))(X), spread(X.sum((0, 1))))


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: lax.psum(x, "k"),
        lambda x: lax.pmean(x, ("k", "i")),
        lambda x: lax.axis_index("k"),
        lambda x: lax.all_gather(x, "k"),
        lambda x: lax.ppermute(x, "k", [(0, 1)]),
        lambda x: lax.psum(1, "k"),
        lambda x: lax.axis_size("k"),
    ],
)
def test_names_that_nobody_binds(f):
    with pytest.raises(NameError, match="unbound axis name: k"):
        fnx.jit(f)(1.0)
    with pytest.raises(UnboundAxis, match="'i'"):
        mapped(f)(X)
    with pytest.raises(UnboundAxis, match="'i'"):
        mapped(fnx.jit(fnx.grad(lambda x: jnp.sum(f(x)))))(X)


def test_a_jaxpr_that_lost_its_axis():
    closed = fnx.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 3)])(1.0)
    from fnx.core.array import as_array
    from fnx.core.jaxpr import eval_jaxpr

    with pytest.raises(UnboundAxis, match="unbound axis name: i"):
        eval_jaxpr(closed.jaxpr, [as_array(1.0)])


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]), InvalidValue, "at most once"),
        (lambda x: lax.ppermute(x, "i", [(0, 4)]), InvalidValue, "members 0 to 3"),
        (lambda x: lax.pshuffle(x, "i", [0, 1, 2]), InvalidValue, "once"),
        (lambda x: lax.all_to_all(x, "i", 1, 0), ShapeError, "tiled=True"),
        (lambda x: lax.all_to_all(x[:3], "i", 0, 0, tiled=True), ShapeError, "multiple"),
        (lambda x: lax.psum_scatter(x[:3], "i"), ShapeError, "expected the size"),
        (lambda x: lax.psum_scatter(x[0, 0], "i"), ValueError, "axis 0"),
        (lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2]]), InvalidValue, "once"),
        (
            lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1, 2], [3]]),
            InvalidValue,
            "equal",
        ),
        (lambda x: lax.pcast(x, "i", to="other"), InvalidValue, "varying"),
    ],
)
def test_wrong_arguments(f, error, text):
    with pytest.raises(error, match=text):
        mapped(f)(X)


IN_GROUPS = {
    "psum": lambda x, n: lax.psum(x, n, axis_index_groups=GROUPS),
    "pmin": lambda x, n: lax.pmin(x, n, axis_index_groups=GROUPS),
    "all_gather": lambda x, n: lax.all_gather(x, n, axis_index_groups=GROUPS, axis=1),
    "tiled all_gather": lambda x, n: lax.all_gather(x, n, axis_index_groups=GROUPS, tiled=True),
    "psum_scatter": lambda x, n: lax.psum_scatter(x[:2], n, axis_index_groups=GROUPS),
    "tiled psum_scatter": lambda x, n: lax.psum_scatter(x, n, axis_index_groups=GROUPS, tiled=True),
    "all_to_all": lambda x, n: lax.all_to_all(x[:2], n, 0, 1, axis_index_groups=GROUPS),
    "tiled all_to_all": lambda x, n: lax.all_to_all(
        x, n, 0, 1, axis_index_groups=GROUPS, tiled=True
    ),
    "psum of 1": lambda x, n: x * lax.psum(1, n, axis_index_groups=GROUPS),
}


@pytest.mark.parametrize("f", IN_GROUPS.values(), ids=IN_GROUPS)
def test_groups_of_members_of_several_axes(f):
    """Those of axes j and k, numbered as `axis_index` does, are those of one axis."""
    along_two = fnx.vmap(fnx.vmap(lambda x: f(x, ("j", "k")), axis_name="k"), axis_name="j")
    two = lambda x: along_two(x.reshape(2, 2, *x.shape[1:])).reshape(expected.shape)
    one = mapped(lambda x: f(x, "i"))
    expected, pull = fnx.vjp(one, X)
    close(two(X), expected)
    ct = np.cos(np.arange(expected.size)).reshape(expected.shape)
    close(fnx.vjp(two, X)[1](ct)[0], pull(ct)[0])


def test_groups_of_different_sizes():
    groups = [[3], [0, 2, 1]]
    wanted = lambda reduce: np.stack([*[reduce(X[:3], 0)] * 3, X[3]])
    call = lambda f: mapped(lambda x: f(x, "i", axis_index_groups=groups))(X)
    for f, reduce in ((lax.psum, np.sum), (lax.pmax, np.max), (lax.pmean, np.mean)):
        close(call(f), wanted(reduce))
