"""x[...] and x.at[...] against NumPy: basic, advanced, mixed, boolean, traced, out of bounds."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.errors import NonConcreteBooleanIndexError

X = np.arange(4 * 5 * 6, dtype=float).reshape(4, 5, 6)


class Index:
    def __getitem__(self, index):
        return index


at = Index()
I = np.array([0, 2, -1])
J = np.array([[1], [3], [-2]])
M = np.array([True, False, True, True])
MM = X[:, :, 0] % 7 > 2
INDICES = [
    at[1],
    at[-1],
    at[1:3],
    at[::2],
    at[::-1],
    at[3:0:-2],
    at[...],
    at[..., None],
    at[1, 2],
    at[1, ..., 1],
    at[:, 1],
    at[:, None, 1],
    at[..., -1],
    at[None, 1:3, None],
    at[I],
    at[I, I],
    at[I, :, I],
    at[:, I],
    at[:, I, I],
    at[I, 1],
    at[1, I],
    at[1, :, I],
    at[I, None, 1],
    at[:, None, I, I],
    at[None, I, None, I],
    at[I, ..., J],
    at[J, I],
    at[M],
    at[MM],
    at[M, 1],
    at[M, :, I],
    at[1:3, I],
    at[::-2, I, 1:4],
    at[::-1, 2, ::3],
    at[2:2],
    at[5:],
    at[:0, I],
    at[I, ::2, -1],
    at[1, 1, 1],
    at[True],
    at[False],
    at[:, True],
    at[I[:0]],
    at[np.array(2), I],
    at[np.int32(1), np.int64(-2)],
    at[MM, 1],
    at[MM, ::2],
    at[[0, 2], :],
    at[:, [True, False, True, False, True]],
]
UPDATES = {
    "set": lambda old, new: new,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "power": np.power,
}
UFUNCS = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}


def index_id(index):
    return str(index).replace("\n", " ").replace(" ", "")[:60]


def same(found, expected):
    assert (found.shape, found.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-13)


@pytest.mark.parametrize("index", INDICES, ids=index_id)
def test_reading(index):
    expected = X[index]
    same(jnp.asarray(X)[index], expected)
    same(fnx.jit(lambda x: x[index])(X), expected)
    same(
        fnx.vmap(lambda x: x[index], in_axes=2)(np.stack([X, -X], 2)),
        np.stack([expected, -expected]),
    )


@pytest.mark.parametrize("op", UPDATES)
@pytest.mark.parametrize(
    "index", [k for k in INDICES if (k[0] if isinstance(k, tuple) else k) is not J], ids=index_id
)
def test_updating(index, op):
    x = X + 1
    y = np.linspace(0.5, 2, X[index].size).reshape(X[index].shape)
    expected = x.copy()
    expected[index] = UPDATES[op](x[index], y)
    same(getattr(jnp.asarray(x).at[index], op)(y), expected)
    same(fnx.jit(lambda x, y: getattr(x.at[index], op)(y))(x, y), expected)
    number = x.copy()
    number[index] = UPDATES[op](x[index], 2.0)
    same(getattr(jnp.asarray(x).at[index], op)(2.0), number)


@pytest.mark.parametrize("op", UFUNCS)
def test_repeated_indices_combine(op):
    index, y = np.array([1, 1, 3, 1]), np.array([2.0, 3.0, 4.0, 5.0])
    expected = np.ones(5)
    UFUNCS[op].at(expected, index, y)
    same(getattr(jnp.ones(5).at[index], op)(y), expected)
    same(fnx.jit(lambda x: getattr(x.at[index], op)(y))(np.ones(5)), expected)


TRACED = [
    "i",
    "i, 1:3",
    "1:3, i",
    "i, j",
    "i, :, j",
    "..., i",
    "i, None",
    "i, I",
    "v",
    "v, i",
    ":, v",
    "v, :, v",
    "::-1, i",
    ":, i, ::2",
]


@pytest.mark.parametrize("text", TRACED)
@pytest.mark.parametrize(("i", "j"), [(1, 2), (-1, -2), (0, 0)])
def test_traced_indices(text, i, j):
    v = np.array([i, 1, -1, j])
    scope = {"I": I}
    read = eval(f"lambda x, i, j, v: x[{text}]", scope)
    write = eval(f"lambda x, i, j, v: x.at[{text}].set(0.5)", scope)
    same(fnx.jit(read)(X, i, j, v), read(X, i, j, v))
    expected = X.copy()
    exec(f"x[{text}] = 0.5", {**scope, "x": expected, "i": i, "j": j, "v": v})
    same(fnx.jit(write)(X, i, j, v), expected)
    lanes = fnx.vmap(read, in_axes=(None, 0, 0, 0))(X, *(np.stack([a, a]) for a in (i, j, v)))
    same(lanes[1], read(X, i, j, v))


def test_out_of_bounds():
    x = jnp.arange(3.0)
    for read in (lambda x, i: x[i], fnx.jit(lambda x, i: x[i])):
        assert read(x, 7) == 2
        assert read(x, -9) == 0
        same(read(x, np.array([7, -9])), np.array([2.0, 0.0]))
    assert np.isnan(x.at[7].get(mode="fill"))
    assert x.at[7].get(mode="fill", fill_value=-1) == -1
    assert x.at[7].get(fill_value=-1) == 2
    assert x.at[7].get(mode="clip") == 2
    assert np.isnan(jnp.take(x, 7))
    for write in (lambda x, i: x.at[i].set(9.0), fnx.jit(lambda x, i: x.at[i].set(9.0))):
        same(write(x, 7), np.arange(3.0))
        same(write(x, -9), np.arange(3.0))
    same(x.at[7].set(9.0, mode="clip"), np.array([0.0, 1.0, 9.0]))
    same(x.at[np.array([0, 5])].add(1.0, mode="drop"), np.array([1.0, 1.0, 2.0]))


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_negative_indices_need_not_count_from_the_end(wrap):
    """Then they are out of bounds: filled or clamped when they are read, and not written."""
    x, i, options = np.arange(4.0), np.array([-1, 1, -1]), {"wrap_negative_indices": False}
    found = wrap(
        lambda x: (
            x.at[i].get(**options),
            x.at[i].get(mode="fill", fill_value=-7, **options),
            x.at[i].set(9.0, **options),
            x.at[i].add(9.0, mode="clip", **options),
            x.at[i].divide(2.0, **options),
            x.at[i].apply(lambda v: v + 5, **options),
            x.at[-1].set(9.0, **options),
        )
    )(jnp.asarray(x))
    expected = [[0, 1, 0], [-7, 1, -7], [0, 9, 2, 3], [18, 10, 2, 3], [0, 0.5, 2, 3]]
    for got, want in zip(found, [*expected, [0, 6, 2, 3], x]):
        same(got, np.asarray(want, float))


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_each_index_is_clamped_along_its_own_axis(wrap):
    x = np.arange(6.0).reshape(2, 3)
    i, j = np.array([0, 5, 0, -9, 1]), np.array([5, 0, -7, 2, 3])
    rows, columns = np.array([0, 1, 0, 0, 1]), np.array([2, 0, 0, 2, 2])
    same(wrap(lambda x, i, j: x[i, j])(jnp.asarray(x), i, j), x[rows, columns])
    same(wrap(lambda x, j: x[1, j])(jnp.asarray(x), j), x[1, columns])
    lanes = np.stack([x, x + 10]), np.stack([j, j[::-1]])
    found = wrap(fnx.vmap(lambda x, j: x[0, j]))(*lanes)
    same(found, np.stack([x[0, columns], x[0, columns[::-1]] + 10]))


def test_static_indices_make_slices_and_no_gather():
    def names(fn):
        return {eqn.prim.name for eqn in fnx.make_jaxpr(fn)(X).eqns}

    assert names(lambda x: x[1, ::-1, 1:3]) == {"slice", "rev", "squeeze"}
    assert names(lambda x: x[None, 1:]) == {"slice", "broadcast_in_dim"}
    assert names(lambda x: x.at[1:3, ::2].set(0.0)) == {"broadcast_in_dim", "slice_set"}
    assert names(lambda x: x.at[1].add(x[2])) == {"slice", "squeeze", "reshape", "slice_add"}


def test_a_traced_number_makes_a_dynamic_slice():
    names = [eqn.prim.name for eqn in fnx.make_jaxpr(lambda x, i: x[i])(X, 1).eqns]
    assert "dynamic_slice" in names
    assert "gather" not in names


def test_masks():
    x = jnp.asarray(X)
    same(x[x > 50], X[X > 50])
    with pytest.raises(NonConcreteBooleanIndexError, match="where"):
        fnx.jit(lambda x: x[x > 50])(X)
    expected = np.where(X > 50, 0.0, X)
    same(fnx.jit(lambda x: x.at[x > 50].set(0.0))(X), expected)
    same(x.at[x > 50].set(0.0), expected)


def test_gradients_of_reads_and_updates():
    read = fnx.grad(lambda x: jnp.sum(x[1:, I] ** 2))(X)
    expected = np.zeros_like(X)
    expected[1:, I] = 2 * X[1:, I]
    same(read, expected)
    gx, gy = fnx.grad(lambda x, y: jnp.sum(x.at[1:3].set(y) * X), argnums=(0, 1))(X, X[:2])
    kept = X.copy()
    kept[1:3] = 0
    same(gx, kept)
    same(gy, X[1:3])


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ((0, 0, 0, 0), IndexError, "too many"),
        ((..., ...), IndexError, "ellipsis"),
        (0.5, TypeError, "float"),
        ("a", TypeError, "str"),
        ([0, 1], TypeError, "array"),
        (np.array([0.5]), TypeError, "integers"),
        (np.array([True, False]), IndexError, "mask"),
    ],
)
def test_indices_that_do_not_fit(index, error, words):
    with pytest.raises(error, match=words):
        jnp.asarray(X)[index]
    with pytest.raises(error, match=words):
        fnx.jit(lambda x: x[index])(X)


def test_a_slice_with_traced_ends_says_what_to_do():
    with pytest.raises(TypeError, match="dynamic_slice_in_dim"):
        fnx.jit(lambda x, i: x[i:])(X, 1)


def test_values_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(3,\)"):
        jnp.zeros((2, 4)).at[0].set(jnp.ones(3))
    with pytest.raises(TypeError, match="complex"):
        jnp.zeros(3).at[0].set(1j)


def test_assignment_names_at():
    x = jnp.zeros(3)
    with pytest.raises(TypeError, match=r"\.at\["):
        x[0] = 1


def test_sequences():
    x = jnp.asarray(X[0])
    assert len(x) == 5
    assert [float(v[0]) for v in x] == [0, 6, 12, 18, 24]
    a, b = jnp.array([1.0, 2.0])
    assert (a, b) == (1, 2)
    assert 3.0 in x
    assert 3.5 not in x
    assert fnx.jit(lambda x: [v.sum() for v in x][1])(X[0]) == X[0, 1].sum()
    with pytest.raises(TypeError, match="rank 0"):
        iter(jnp.ones(()))
    with pytest.raises(TypeError):
        len(jnp.ones(()))


def test_apply_and_get():
    x = jnp.array([1.0, 4.0, 9.0])
    same(x.at[1:].apply(jnp.sqrt), np.array([1.0, 2.0, 3.0]))
    same(x.at[1:].get(), np.array([4.0, 9.0]))


def test_dividing_one_element_touches_that_element():
    """Where an index names nothing twice, `divide` and `power` need no array of products."""
    x = np.arange(1.0, 5.0)
    for index in (1, -1, slice(1, 3), jnp.asarray(2), jnp.asarray(9)):
        text = str(fnx.make_jaxpr(lambda x: x.at[index].divide(2.0))(x))  # noqa: B023
        assert "scatter-mul" not in text
        assert "div" in text
        want = x.copy()
        if not isinstance(index, jnp.ndarray) or int(index) < 4:
            want[index if isinstance(index, (int, slice)) else int(index)] /= 2
        np.testing.assert_array_equal(jnp.asarray(x).at[index].divide(2.0), want)
    np.testing.assert_array_equal(jnp.asarray(x).at[np.array([1, 1])].divide(2.0), [1, 0.5, 3, 4])
    np.testing.assert_array_equal(jnp.asarray(x).at[2].power(2), [1, 2, 9, 4])
    assert jnp.arange(4).at[1].divide(2).dtype == np.float64


@pytest.mark.parametrize("index", [[0], [0, [1]], [slice(None)], "a"])
def test_lists_are_no_indices_of_updates_either(index):
    x = jnp.arange(6).reshape(2, 3)
    for use in (
        lambda: x[index],
        lambda: x.at[index],
        lambda: fnx.jit(lambda x: x.at[index].set(0))(x),
    ):
        with pytest.raises(TypeError, match=r"fnx\.numpy\.array"):
            use()


def test_the_slope_of_one_minimum_does_not_go_through_the_array():
    """Where one window is written, only that is compared."""
    f = lambda x, v: (x * 1.0).at[3].min(v)
    jaxpr = fnx.make_jaxpr(lambda x, v: fnx.jvp(f, (x, v), (x, v)))(np.ones(9), 0.5).jaxpr
    compared = [e for e in jaxpr.eqns if e.prim.name in ("eq", "div")]
    assert all(v.aval.size == 1 for e in compared for v in e.outs)
    slope = fnx.grad(lambda x, v: jnp.sum(f(x, v) * jnp.arange(9.0)), (0, 1))
    x = jnp.ones(9)
    for v, mine in ((0.5, 3.0), (2.0, 0.0), (1.0, 1.5)):
        found = slope(x, v)
        np.testing.assert_allclose(found[1], mine)
        np.testing.assert_allclose(found[0], jnp.arange(9.0).at[3].set(3.0 - mine))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64"])
@pytest.mark.parametrize(
    "pick",
    [
        lambda x, i: x[i],
        jnp.take,
        lambda x, i: jnp.take_along_axis(x, i, 0),
        lambda x, i: jnp.insert(x, i, 7),
        lambda x, i: x.at[i].add(1),
        lambda x, i: lax.dynamic_slice(x, (i[2],), (3,)),
    ],
)
def test_indices_may_be_of_types_that_cannot_hold_the_axis_size(pick, dtype):
    x, i = jnp.arange(300), np.array([3, 7 if dtype == "uint8" else -1, 100])
    np.testing.assert_array_equal(pick(x, jnp.asarray(i, dtype)), pick(x, jnp.asarray(i)))


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
@pytest.mark.parametrize("index", [-1, np.int8(-1), np.array([-1, 3], "int8")])
def test_negative_indices_that_do_not_count_from_the_end(wrap, index):
    x, last = jnp.arange(4.0), [3.0] * (np.ndim(index) > 0)
    asked = {"wrap_negative_indices": False}
    get = lambda mode: wrap(lambda x: x.at[index].get(mode=mode, **asked))(x).ravel().tolist()
    assert get(None) == get("clip") == [0.0, *last]
    assert str(get("fill")) == str([np.nan, *last])
    for name, change in (("set", 9.0), ("add", 9.0), ("divide", 2.0), ("apply", jnp.cos)):
        changed = lambda x, **how: getattr(x.at[index], name)(change, **asked, **how)  # noqa: B023
        assert wrap(changed)(x)[:3].tolist() == [0.0, 1.0, 2.0]
        clipped = wrap(lambda x: changed(x, mode="clip"))(x + 1)  # noqa: B023
        assert clipped[0] != 1.0
        assert clipped[1:3].tolist() == [2.0, 3.0]


def test_values_of_updates_may_be_lists():
    x = jnp.zeros(3)
    assert x.at[jnp.arange(3)].set([1, 2, 3]).tolist() == [1, 2, 3]
    assert x.at[:2].add((1, 2)).tolist() == [1, 2, 0]
    assert x.at[:].subtract([1, 2, 3]).tolist() == [-1, -2, -3]
    assert (x + 6).at[:].divide([1, 2, 3]).tolist() == [6, 3, 2]
    assert fnx.jit(lambda v: x.at[1:].max([v, 2.0]))(3.0).tolist() == [0, 3, 2]
    with pytest.raises(ValueError, match="shape"):
        x.at[:2].set([1, 2, 3])
    with pytest.raises(TypeError, match="<U1"):
        x.at[:1].set(["a"])


def test_subtracted_values_have_the_type_of_the_array_first():
    assert jnp.ones(2).at[0].subtract(True).tolist() == [0, 1]
    assert jnp.full(2, 3, "uint8").at[1].subtract(1).tolist() == [3, 2]
    assert jnp.full(2, 300).at[:].subtract(jnp.array([1, 255], "uint8")).tolist() == [299, 45]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_indices_that_are_unique_in_each_member_are_not_among_members(compiled):
    x, starts = jnp.arange(5.0), jnp.arange(3)
    read = lambda x, start: x.at[start + jnp.arange(3)].get(
        mode="clip", unique_indices=True, indices_are_sorted=True
    )
    weights = np.arange(9.0).reshape(3, 3)
    f = lambda x: jnp.sum(weights * fnx.vmap(read, in_axes=(None, 0))(x, starts))
    expected = np.zeros(5)
    for start in range(3):
        expected[start : start + 3] += weights[start]
    np.testing.assert_array_equal((fnx.jit if compiled else lambda f: f)(fnx.grad(f))(x), expected)
