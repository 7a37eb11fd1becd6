"""Operations along an axis that is cut: the numbers of whole arrays, and nothing is gathered."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P
from fnx.transforms.traced_program import BACKEND

RNG = np.random.default_rng(0)
ODD = RNG.normal(size=(13, 6))  # in parts that have not all as many rows
EVEN = RNG.normal(size=(16, 8))


@pytest.fixture(autouse=True)
def _devices():
    with config.num_devices(4):
        yield


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """All programs of devices by a team of threads, however small they are."""
    monkeypatch.setattr(type(BACKEND), "team_pays", lambda self, size, work, exchanges: True)
    fnx.clear_caches()
    yield
    fnx.clear_caches()


MESHES = {"row": ((4,), ("x",), P("x")), "both": ((2, 2), ("x", "y"), P(("x", "y")))}


def on(x, of="row"):
    shape, names, spec = MESHES[of]
    return fnx.device_put(x, NamedSharding(fnx.make_mesh(shape, names), spec))


def gathers(f, *args):
    report = fnx.jit(f).lower(*args).compile().report()
    return [line for line in report.splitlines() if "all_gather" in line]


def holed(x):
    """With some elements that are no numbers."""
    return jnp.where(x > 1.2, jnp.nan, x)


ALONG = {
    "rev": lambda x: jnp.flip(x, 0),
    "rev_both": jnp.flip,
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumsum_back": lambda x: lax.cumsum(x, reverse=True),
    "cumsum_int": lambda x: jnp.cumsum((10 * x).astype(jnp.int32), 0),
    "cumprod": lambda x: jnp.cumprod(x, 0),
    "cumprod_complex": lambda x: jnp.cumprod(x + 1j * jnp.cos(x), 0),
    "cummax": lax.cummax,
    "cummin_back": lambda x: lax.cummin(x, reverse=True),
    "cummax_int8": lambda x: lax.cummax((10 * x).astype(jnp.int8)),
    "cummax_nan": lambda x: lax.cummax(holed(x)),
    "cumlogsumexp": lax.cumlogsumexp,
    "cumlogsumexp_back": lambda x: lax.cumlogsumexp(x, reverse=True),
    "argmax": lambda x: jnp.argmax(x, 0),
    "argmin": lambda x: jnp.argmin(x, 0),
    "argmax_ties": lambda x: jnp.argmax(jnp.round(x), 0),
    "argmax_bool": lambda x: jnp.argmax(x > 0.3, 0),
    "argmax_nan": lambda x: jnp.argmax(holed(x), 0),
    "argmin_lowest": lambda x: jnp.argmax(jnp.full_like(x, -jnp.inf), 0),
    "argmin_int8": lambda x: lax.argmin((10 * x).astype(jnp.int8), 0, np.int8),
    "roll": lambda x: jnp.roll(x, 1, 0),
    "roll_far": lambda x: jnp.roll(x, -7, 0),
    "roll_part": lambda x: jnp.roll(x, 4, 0),
    "vmap": fnx.vmap(jnp.cumsum, 1, 1),
    "derivative_cumsum": fnx.grad(lambda x: jnp.sum(jnp.sin(jnp.cumsum(x, 0)))),
    "derivative_cumprod": fnx.grad(lambda x: jnp.sum(jnp.sin(jnp.cumprod(x, 0)))),
    "derivative_cummax": fnx.grad(lambda x: jnp.sum(jnp.sin(lax.cummax(x)))),
    "derivative_rev": fnx.grad(lambda x: jnp.sum(x * jnp.cumsum(jnp.flip(x, 0), 0))),
    "in_loop": lambda x: lax.fori_loop(0, 3, lambda _, c: 0.1 * jnp.cumsum(jnp.flip(c, 0), 0), x),
}
HALVES = {
    "every_second": lambda x: x[::2],
    "every_fourth": lambda x: x[::4],
    "odd_ones": lambda x: x[1::2],
    "third_on": lambda x: x[3::4],
    "backwards": lambda x: x[::-2],
    "derivative": fnx.grad(lambda x: jnp.sum(jnp.sin(x[1::2]))),
}


@pytest.mark.slow
@pytest.mark.parametrize("of", MESHES)
@pytest.mark.parametrize("name", ALONG)
def test_operations_along_a_cut_axis_are_those_of_whole_arrays(name, of):
    f = ALONG[name]
    found = fnx.jit(f)(on(EVEN, of))
    close(found, fnx.jit(f)(EVEN), 1e-12, 1e-12)
    assert found.ndim < 2 or found.sharding.spec == MESHES[of][2]


@pytest.mark.parametrize(
    "x", [EVEN[:4], EVEN[:, :0], EVEN[:0]], ids=["a row each", "none", "no row"]
)
def test_few_elements(x):
    twice = lambda x: jnp.concatenate([x, x])
    close(fnx.jit(twice)(on(x)), np.concatenate([x, x]))
    if not len(x):
        return
    for name in ("rev", "cumsum_back", "cummax", "argmin", "roll_far"):
        close(fnx.jit(ALONG[name])(on(x)), fnx.jit(ALONG[name])(x), 1e-12, 1e-12)


def within(f):
    """The function of an array whose parts have not all as many rows: one more than is cut."""
    return lambda x: f(jnp.concatenate([x, x[:1] + 1.0]))


@pytest.mark.parametrize("name", ALONG)
def test_parts_that_have_not_all_as_many_elements_change_nothing(name):
    f = within(ALONG[name]) if not name.startswith("derivative") else None
    if f is None:
        f = fnx.grad(
            lambda x: jnp.sum(jnp.sin(within(lambda y: jnp.cumprod(jnp.flip(y, 0), 0))(x)))
        )
    close(fnx.jit(f)(on(ODD[:12])), fnx.jit(f)(ODD[:12]), 1e-12, 1e-12)


@pytest.mark.parametrize("of", MESHES)
@pytest.mark.parametrize("name", HALVES)
def test_every_kth_element(name, of):
    f = HALVES[name]
    close(fnx.jit(f)(on(EVEN, of)), fnx.jit(f)(EVEN))
    assert not gathers(f, on(EVEN, of))


@pytest.mark.parametrize("name", [n for n in ALONG if not n.startswith("rev_both")])
def test_nothing_is_gathered(name):
    assert not gathers(ALONG[name], on(EVEN))


# --- windows, and axes that must be whole -------------------------------------------------------

KERNEL, SQUARE = RNG.normal(size=(2, 1, 3, 3)), RNG.normal(size=(8, 16))


def image(x):
    return jnp.stack([x, jnp.cos(x)])[:, None]


def conv(x, w, strides=(1, 1), padding="SAME", **others):
    return lax.conv_general_dilated(image(x), w, strides, padding, **others)


def pooled(x, window, strides, padding="VALID"):
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)


REACHED = {
    "conv": lambda x: conv(x, KERNEL)[0, 1],
    "conv_strides": lambda x: conv(x, KERNEL, (2, 1), [(1, 0), (0, 1)]),
    "conv_holes": lambda x: conv(x, KERNEL, rhs_dilation=(2, 1)),
    "conv_spread": lambda x: conv(x, KERNEL, padding=[(2, 1), (1, 1)], lhs_dilation=(2, 1)),
    "conv_derivative": fnx.grad(lambda x: jnp.sum(jnp.sin(conv(x, KERNEL, (2, 1))))),
    "filter_derivative": lambda x: fnx.grad(lambda w: jnp.sum(jnp.sin(conv(x, w))))(KERNEL),
    "filter_derivative_strides": lambda x: fnx.grad(
        lambda w: jnp.sum(jnp.sin(conv(x, w, (2, 2), "VALID")))
    )(KERNEL),
    "largest": lambda x: pooled(x, (2, 2), (2, 1)),
    "largest_same": lambda x: pooled(x, (3, 1), (1, 1), "SAME"),
    "largest_derivative": fnx.grad(lambda x: jnp.sum(jnp.sin(pooled(x, (2, 2), (2, 2))))),
    "largest_derivative_overlap": fnx.grad(lambda x: jnp.sum(jnp.sin(pooled(x, (3, 2), (1, 1))))),
    "sums": lambda x: lax.reduce_window(x, 0.0, lax.add, (4, 1), (2, 1), "SAME"),
    "sort": lambda x: jnp.sort(x, 0),
    "order": lambda x: jnp.argsort(jnp.round(x), 0),
    "median": lambda x: jnp.median(x, 0),
    "fft": lambda x: jnp.fft.fft(x, axis=0).real,
    "fft2": lambda x: jnp.abs(jnp.fft.fft2(x)),
    "rfft2": lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x[:, :6]) * 2.0),
    "solve": lambda x: jnp.linalg.solve(jnp.eye(8) + 0.1, x.T),
    "solve_rows": fnx.vmap(lambda v: jnp.linalg.solve(jnp.eye(8) + 0.1, v)),
    "diagonal": lambda x: jnp.diagonal(x @ SQUARE),
    "diagonal_columns": lambda x: jnp.diagonal((x @ SQUARE).T),
    "trace": lambda x: jnp.trace((x @ SQUARE).T),
    "histogram": lambda x: jnp.histogram(x, 8)[0],
    "segments": lambda x: fnx.ops.segment_max(x[:, 0], (jnp.arange(16) * 3) % 4, 4),
    "outer": lambda x: jnp.outer(x[:, 0], jnp.arange(8.0)),
    "gaps": lambda x: lax.pad(x, 0.5, ((1, 0, 1), (0, 0, 2))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REACHED)
def test_what_reaches_into_other_parts_gathers_nothing(name):
    f = REACHED[name]
    close(fnx.jit(f)(on(EVEN)), fnx.jit(f)(EVEN), 1e-11, 1e-11)
    assert not gathers(f, on(EVEN))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["conv_derivative", "largest_derivative_overlap", "sort", "fft2", "diagonal"]
)
def test_what_reaches_into_other_parts_along_two_axes(name):
    f = REACHED[name]
    for spec in (P("x", "y"), P(("x", "y"))):
        x = fnx.device_put(EVEN, NamedSharding(fnx.make_mesh((2, 2), ("x", "y")), spec))
        close(fnx.jit(f)(x), fnx.jit(f)(EVEN), 1e-11, 1e-11)
        assert not gathers(f, x)


def test_largest_of_parts():
    x = np.round(np.random.default_rng(3).normal(size=(3, 40)))
    x[0, 7] = np.nan
    f = lambda x: lax.top_k(x, 2)
    xs = fnx.device_put(x, NamedSharding(fnx.make_mesh((4,), ("x",)), P(None, "x")))
    for a, b in zip(fnx.jit(f)(xs), fnx.jit(f)(x), strict=True):
        close(a, b)
    assert [line.split(" of ")[1].split(" ")[0] for line in gathers(f, xs)] == [
        "f64[3,8]",
        "i64[3,8]",
    ]


# --- positions that are operands ------------------------------------------------------------------

FEW = np.array([3, 0, 15, 3, -1, 8])
OUTSIDE = np.array([3, -40, 15, 99, 8])


def _start(x):
    """A number that is known when the program runs."""
    return (x[5, 0] * 0).astype(jnp.int64)


AT = {
    "rows": lambda x: x[FEW],
    "row": lambda x: jnp.take(x, 9, axis=0),
    "rows_fill": lambda x: jnp.take(x, OUTSIDE, axis=0, mode="fill", fill_value=7.0),
    "rows_clip": lambda x: jnp.take(x, OUTSIDE, axis=0, mode="clip"),
    "rows_int": lambda x: (10 * x).astype(jnp.int8)[FEW],
    "rows_uint8": lambda x: x[FEW[:4].astype(np.uint8)],
    "rows_bool": lambda x: (x > 0)[FEW],
    "rows_float32": lambda x: x.astype(jnp.float32)[FEW],
    "elements": lambda x: x[FEW, FEW % 8],
    "negative_zeros": lambda x: jnp.signbit((-jnp.abs(x) * 0)[FEW]),
    "not_numbers": lambda x: holed(x)[FEW],
    "rows_of_rows": lambda x: x[jnp.asarray(FEW).reshape(2, 3)],
    "along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "one_row": lambda x: lax.dynamic_index_in_dim(x, _start(x) + 9, 0),
    "two_rows": lambda x: lax.dynamic_slice(x, (_start(x) + 7, 0), (2, 8)),
    "last_rows": lambda x: lax.dynamic_slice(x, (_start(x) + 99, 1), (3, 4)),
    "update_rows": lambda x: lax.dynamic_update_slice(x, jnp.ones((5, 8)), (_start(x) + 6, 0)),
    "update_end": lambda x: lax.dynamic_update_slice(x, jnp.ones((3, 2)), (_start(x) + 99, 3)),
    "set": lambda x: x.at[FEW[2:]].set(1.0),
    "add": lambda x: x.at[FEW].add(jnp.arange(8.0)),
    "multiply": lambda x: x.at[FEW].multiply(2.0),
    "largest": lambda x: x.at[FEW].max(0.0),
    "add_outside": lambda x: x.at[OUTSIDE].add(1.0, mode="drop"),
    "add_clipped": lambda x: x.at[OUTSIDE].add(1.0, mode="clip"),
    "add_elements": lambda x: x.at[FEW, FEW % 8].add(1.0),
    "derivative_rows": fnx.grad(lambda x: jnp.sum(jnp.sin(x[FEW]))),
    "derivative_row": fnx.grad(
        lambda x: jnp.sum(lax.dynamic_index_in_dim(x, _start(x) + 9, 0) ** 2)
    ),
    "vmap": fnx.vmap(lambda v: v[FEW], 1, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("of", MESHES)
@pytest.mark.parametrize("name", AT)
def test_positions_that_are_operands(name, of):
    f = AT[name]
    close(fnx.jit(f)(on(EVEN, of)), fnx.jit(f)(EVEN), 1e-12, 1e-12)
    if name != "along_axis":
        assert not gathers(f, on(EVEN, of))


def test_what_is_written_may_be_cut_by_other_names_than_what_it_is_written_to():
    with config.num_devices(8):
        mesh = fnx.make_mesh((2, 4), ("x", "y"))
        rows, others = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("y"))

        @fnx.jit
        def f(x):
            x = lax.dynamic_update_slice_in_dim(x, jnp.ones((2, 2)), 3, 0)
            return lax.with_sharding_constraint(x, others)

        x = np.arange(16.0).reshape(8, 2)
        np.testing.assert_array_equal(f(fnx.device_put(x, rows)), f(x))


@pytest.mark.parametrize("name", AT)
def test_positions_in_parts_that_have_not_all_as_many_elements(name):
    f = lambda x: AT[name](jnp.concatenate([x, x[:1] + 1.0]))
    x = np.concatenate([ODD, ODD[:3] + 2.0], 0)
    x = np.concatenate([x, x[:, :2]], 1)
    close(fnx.jit(f)(on(x)), fnx.jit(f)(x), 1e-12, 1e-12)
