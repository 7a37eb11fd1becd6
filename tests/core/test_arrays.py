"""Arrays: immutable, indexed as NumPy's, with operators, protocols, dtypes and promotion."""

import copy
import operator
import pickle
import sys
from itertools import product

import jaxtyping
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
DTYPES += "float16 bfloat16 float32 float64 complex64 complex128".split()


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    np.testing.assert_array_equal(a, b)


# --- what an array is --------------------------------------------------------------------------


def test_arrays_do_not_change():
    source = np.arange(3.0)
    x = jnp.asarray(source)
    source[0] = 9.0
    same(x, [0, 1, 2])
    view = np.asarray(x)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9.0
    with pytest.raises(TypeError, match=r"\.at\["):
        x[0] = 9.0
    y = x
    y += 1.0
    same(x, [0, 1, 2])
    same(y, [1, 2, 3])
    with pytest.raises(TypeError):
        hash(x)


def test_no_copy_on_the_way_to_numpy():
    x = jnp.arange(5.0)
    a, b = np.asarray(x), np.asarray(x)
    assert np.shares_memory(a, b)
    assert np.shares_memory(a, np.from_dlpack(x))


def test_results_of_compiled_functions_are_arrays_of_their_own():
    f = fnx.jit(lambda x: (x, x + 1.0))
    x = jnp.arange(3.0)
    first, second = f(x), f(x)
    assert not np.shares_memory(np.asarray(first[1]), np.asarray(second[1]))
    same(f(first[1])[1], [2, 3, 4])
    same(first[1], [1, 2, 3])


@pytest.mark.parametrize("x", [1.5, [1.0, 2.0], np.zeros((2, 0)), np.float32(3), True, 2 + 1j])
def test_repr_evaluates_to_the_array(x):
    x = jnp.asarray(x)
    text = repr(x)
    assert text.startswith("Array(")
    assert f"dtype={x.dtype.name}" in text
    assert ("weak_type=True" in text) == x.weak_type
    if x.size and not x.weak_type:
        space = {"Array": np.array} | vars(np)
        same(eval(text, space), x)


def test_python_protocols():
    x = jnp.array([1.5, 2.5])
    assert [float(v) for v in x] == [1.5, 2.5]
    assert len(x) == 2
    assert 2.5 in x
    assert list(reversed(x)) == [2.5, 1.5]
    scalar = jnp.asarray(3)
    assert (int(scalar), float(scalar), complex(scalar), bool(scalar)) == (3, 3.0, 3 + 0j, True)
    assert [10, 11, 12, 13][scalar] == 13
    assert f"{jnp.asarray(1.25):.1f} {x}" == "1.2 [1.5 2.5]"
    with pytest.raises((TypeError, ValueError)):
        bool(x)
    with pytest.raises(TypeError):
        len(scalar)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pickle_copy_and_dlpack(dtype):
    x = jnp.asarray(np.arange(4).reshape(2, 2)).astype(dtype)
    for y in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), jnp.array(x)):
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        same(y.astype("complex128"), x.astype("complex128"))
    if dtype != "bfloat16":
        same(np.from_dlpack(x) if dtype != "bool" else np.asarray(x), x)
        same(jnp.from_dlpack(np.asarray(x).copy()), x)


# --- operators ---------------------------------------------------------------------------------

ARITHMETIC = "add sub mul truediv floordiv mod pow".split()
COMPARISONS = "lt le gt ge eq ne".split()


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS])
@pytest.mark.parametrize("kinds", list(product(["float64", "int64"], repeat=2)))
def test_operators_are_numpys(name, kinds):
    op = getattr(operator, name)
    a = np.array([3, -4, 5, 2]).astype(kinds[0])
    b = np.array([2, 3, 1, 2]).astype(kinds[1])
    expected = op(a, b)
    for x, y in ((jnp.asarray(a), jnp.asarray(b)), (jnp.asarray(a), b), (a, jnp.asarray(b))):
        found = op(x, y)
        assert isinstance(found, fnx.Array)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-14)
        assert found.dtype == expected.dtype
    same(op(jnp.asarray(a), 2), op(a, 2))
    np.testing.assert_allclose(np.asarray(op(3.0, jnp.asarray(b))), op(3.0, b), rtol=1e-14)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bit_operators(name):
    op = getattr(operator, name)
    a, b = np.array([5, 3, 12]), np.array([1, 2, 3])
    same(op(jnp.asarray(a), jnp.asarray(b)), op(a, b))
    same(op(jnp.asarray(a), 2), op(a, 2))
    same(~jnp.array([True, False]), [False, True])
    same(-jnp.asarray(a), -a)
    same(abs(-jnp.asarray(a)), a)
    same(divmod(jnp.asarray(a), 4)[1], a % 4)


# --- promotion ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b", "expected"), [
    ("int8", "uint8", "int16"), ("int64", "float32", "float32"), ("uint64", "int64", "float64"),
    ("bool", "int8", "int8"), ("float16", "bfloat16", "float32"), ("float32", "complex64", "complex64"),
    ("float64", "complex64", "complex128"), ("int32", "bfloat16", "bfloat16"), ("uint8", "int32", "int32"),
])  # fmt: skip
def test_the_lattice(a, b, expected):
    for x, y in ((a, b), (b, a)):
        assert (jnp.ones(1, x) + jnp.ones(1, y)).dtype.name == expected
        assert jnp.promote_types(x, y).name == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_python_numbers_give_way(dtype):
    x = jnp.ones(2, dtype)
    integer, floating = (x * 2).dtype.name, (x * 2.0).dtype.name
    kind = x.dtype.kind if dtype != "bfloat16" else "f"
    assert integer == ("int64" if kind == "b" else dtype)
    assert floating == (dtype if kind in "fc" else "float64")
    assert (x * 2j).dtype.kind == "c"
    traced = fnx.jit(lambda x: (x * 2, x * 2.0, x + True))(x)
    assert [y.dtype.name for y in traced] == [integer, floating, dtype]
    passed = fnx.jit(lambda x, a, b: (x * a, x * b))(x, 2, 2.0)
    assert [y.dtype.name for y in passed] == [integer, floating]


def test_weak_types_stay_weak_among_themselves():
    weak = jnp.asarray(1.0) * 2.0
    x = jnp.ones(1, "float32")
    assert (fnx.jit(lambda a: jnp.sin(a) * 2)(1.0) * x).dtype == np.float32
    assert (weak * x).dtype in (np.float32, np.float64)
    assert (jnp.float64(1.0) * x).dtype == np.float64
    assert (np.float64(1.0) * x).dtype == np.float64
    assert (jnp.array(1.0, "float64") * x).dtype == np.float64


def test_integers_wrap_and_do_not_fit():
    x = jnp.array([250], "uint8")
    same(x + jnp.array([10], "uint8"), [4])
    with pytest.raises(OverflowError):
        jnp.asarray(2**70)


# --- indexing ----------------------------------------------------------------------------------

BASE = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
INDICES = [
    0, -1, (1, 2), (1, 2, 3), slice(1, None), (slice(None, None, -1),), (..., 0), (0, ..., slice(1, 3)),
    (None, 1), (slice(None), None, 2), (slice(None), [0, 2]), ([0, 1], [1, 2]),
    ([0, 1], slice(None), [1, 2]),
    (np.array([[0], [1]]), np.array([0, 2])), (slice(None), np.array([True, False, True])), BASE > 7.0,
    (np.array([True, False]), 1), (0, [True, False, True]), (slice(5, 2), ), (slice(-2, None), -1), [],
    (slice(None, None, 2), slice(None, None, -2)), (..., None), (True,), ([1], 0, [0]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=[str(i).replace("\n", "") for i in INDICES])
def test_indexing_is_numpys(index):
    index = [] if isinstance(index, list) and not index else index
    lists = index if isinstance(index, tuple) else (index,)
    wanted = tuple(
        np.asarray(i, int if not np.size(i) else None) if isinstance(i, list) else i for i in lists
    )
    expected = BASE[wanted]
    x = jnp.asarray(BASE)
    same(x[wanted], expected)
    if not any(np.asarray(i).dtype.kind == "b" for i in wanted if i is not Ellipsis):
        same(fnx.jit(lambda x: x[wanted])(x), expected)


@pytest.mark.parametrize("index", INDICES, ids=[str(i).replace("\n", "") for i in INDICES])
@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
def test_updates_are_numpys(name, index):
    lists = index if isinstance(index, tuple) else (index,)
    wanted = tuple(
        np.asarray(i, int if not np.size(i) else None) if isinstance(i, list) else i for i in lists
    )
    expected, value = BASE.copy(), 5.5
    if name == "set":
        expected[wanted] = value
    else:
        at = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[name]
        at.at(expected, wanted, value)
    x = jnp.asarray(BASE)
    same(getattr(x.at[wanted], name)(value), expected)
    same(x, BASE)
    same(x.at[wanted].get(), BASE[wanted])


def test_duplicates_add_up_and_what_is_out_of_bounds_is_dropped():
    x = jnp.zeros(3)
    same(x.at[jnp.array([1, 1, 7, -1])].add(1.0), [0, 2, 1])
    same(x.at[5].set(1.0), [0, 0, 0])
    same(jnp.arange(3.0)[7], 2.0)  # clamped, as in JAX
    same(jnp.arange(3.0).at[7].get(mode="fill", fill_value=-1.0), -1.0)
    same(x.at[jnp.array([0, 4])].set(2.0, mode="clip"), [2, 0, 2])
    same(jnp.arange(4.0).at[1:3].apply(jnp.square), [0, 1, 4, 3])
    same(jnp.arange(4.0).at[1:3].divide(2.0), [0, 0.5, 1, 3])
    same(jnp.arange(4.0).at[1:3].power(2.0), [0, 1, 4, 3])


@given(st.data())
def test_slices_are_numpys(data):
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3), label="shape")
    base = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    bound = st.none() | st.integers(-7, 7)
    index = tuple(
        slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1, -3])))
        for _ in range(data.draw(st.integers(0, len(shape))))
    )
    same(jnp.asarray(base)[index], base[index])
    updated = base.copy()
    updated[index] = -1
    same(jnp.asarray(base).at[index].set(-1), updated)


# --- NumPy's protocols -------------------------------------------------------------------------


def test_numpy_functions_stay_in_fnx():
    x = jnp.arange(1.0, 4.0)
    for found in (
        np.sin(x),
        np.add(x, 1),
        np.sum(x),
        np.concatenate([x, x]),
        np.add.reduce(x),
        np.ones(3) * x,
    ):
        assert isinstance(found, fnx.Array)
    assert float(fnx.grad(lambda x: np.sum(np.sin(x) * np.arange(3.0)))(x)[1]) == pytest.approx(
        np.cos(2.0)
    )
    assert float(fnx.jit(np.mean)(x)) == 2.0
    assert x.__array_namespace__() is jnp


def test_numpy_arrays_are_written_to():
    total = np.zeros(3)
    total += jnp.ones(3)
    np.multiply(jnp.arange(3.0), 2.0, out=total, where=np.array([True, False, True]))
    total[1:2] = jnp.full(1, 7.0)
    np.testing.assert_array_equal(total, [0.0, 7.0, 4.0])
    with pytest.raises(TypeError, match="immutable"):
        np.add(1.0, 2.0, out=jnp.ones(()))


def test_annotations_of_jaxtyping():
    kind = jaxtyping.Float[fnx.Array, "n 2"]
    assert isinstance(jnp.ones((3, 2)), kind)
    assert not isinstance(jnp.ones((3, 3)), kind)
    assert not isinstance(jnp.ones((3, 2), int), kind)
    seen = []
    fnx.jit(lambda x: seen.append(isinstance(x, kind)))(jnp.ones((3, 2)))
    fnx.vmap(lambda x: seen.append(isinstance(x, jaxtyping.Float[fnx.Array, "2"])))(
        jnp.ones((3, 2))
    )
    assert seen == [True, True]


def test_arrays_are_buffers_to_read():
    view = jnp.arange(3).__buffer__(0)
    assert (view.readonly, view.format, view.tolist()) == (True, "l", [0, 1, 2])
    if sys.version_info >= (3, 12):
        assert memoryview(jnp.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_compiles(dtype):
    x = jnp.asarray(np.array([0, 1, 3, 2])).astype(dtype)
    f = lambda x: (
        x + x,
        x * x,
        jnp.where(x == x, x, x * x),
        x.real.astype("float32"),
        x[::-1],
        jnp.sort(x.real),
    )
    for a, b in zip(fnx.jit(f)(x), f(x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(
            np.asarray(a).astype("complex128"), np.asarray(b).astype("complex128")
        )


def test_numpy_functions_take_lists_beside_arrays():
    assert np.asarray(np.delete([5, 6, 7], jnp.asarray(1))).tolist() == [5, 7]
    found = fnx.jit(lambda x: np.dot([1.0, 2.0], x))(jnp.ones(2))
    assert float(found) == 3.0


class Grid(np.lib.mixins.NDArrayOperatorsMixin):
    """Values with a tag, which implements NumPy's protocols."""

    def __init__(self, data):
        self.data = data

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return Grid(
            getattr(jnp, ufunc.__name__)(*(x.data if isinstance(x, Grid) else x for x in inputs))
        )

    def __array_function__(self, func, types, args, kwargs):
        return Grid(
            getattr(jnp, func.__name__)(
                *(x.data if isinstance(x, Grid) else x for x in args), **kwargs
            )
        )


def test_arrays_leave_numpys_protocols_to_other_types():
    grid = Grid(jnp.arange(3.0))
    for x in (jnp.float32(2.0), jnp.full(3, 2.0), np.float64(2.0), 2):
        for found in (x * grid, grid * x):
            assert isinstance(found, Grid)
            assert np.asarray(found.data).tolist() == [0.0, 2.0, 4.0]
    assert isinstance(np.where(jnp.arange(3) > 1, grid, grid), Grid)
    scaled = fnx.jit(lambda s: (s * grid).data)(3.0)
    assert np.asarray(scaled).tolist() == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int8", "bool", "bfloat16"])
def test_large_arrays_begin_with_a_cache_line(dtype):
    x = np.arange(400_003).reshape(-1, 1).astype(fnx.numpy.dtype(dtype))[2:].T
    y = fnx.numpy.asarray(x)._value
    assert y.ctypes.data % 64 == 0
    assert y.flags.c_contiguous
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)
    assert not np.shares_memory(y, x)


def test_numpys_functions_take_words_that_ours_do_not_have():
    x = jnp.ones(3)
    for f in (np.concatenate, np.stack):
        out = f([x, x], dtype="float32", casting="unsafe")
        assert (out.dtype, out.size) == ("float32", 6)
        with pytest.raises(fnx.errors.TracerArrayConversionError):
            fnx.jit(lambda x, f=f: f([x, x], casting="unsafe"))(x)
