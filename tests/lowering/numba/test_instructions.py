"""Single instructions in what Numba gets: the same values to the bit, and fewer blocks to compile."""

import ast

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.numba import instructions, passes, shortened

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-310, 3e38, -3e38, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a if c else b", "op_choose(c, a, b)"),
        ("(a if c else b) if d else e", "op_choose(d, op_choose(c, a, b), e)"),
        ("np.float64(x).view(np.int64)", "op_view_float64_int64(x)"),
        ("np.uint32(a + b).view(np.int32)", "op_view_uint32_int32(a + b)"),
        ("np.uint32(np.uint32(a + b) >> c)", "op_shr_uint32(op_add_uint32(a, b), c)"),
        ("np.float32(a * np.float32(b / c))", "op_mul_float32(a, op_div_float32(b, c))"),
        ("np.float32(np.sqrt(a))", "np_float32(op_sqrt(a))"),
        ("np.isfinite(a)", "op_isfinite(a)"),
        ("a * b", "a * b"),
        ("np.fmod(a, b)", "np.fmod(a, b)"),
        ("np.float64(a).view(np.bool_)", "np_float64(a).view(np.bool_)"),
    ],
)
def test_what_becomes_an_instruction(text, expected):
    space = {}
    tree = shortened._Shorter(space).visit(ast.parse(text))
    assert ast.unparse(shortened._Instructions(space).visit(tree)) == expected
    assert all(n in space for n in expected.replace("(", " ").split() if n.startswith("op_"))


def _same_bits(f, *args):
    ours, theirs = (fnx.jit(f, backend=b)(*args) for b in ("numba", "reference"))
    for a, b in zip(*map(fnx.tree_util.tree_leaves, (ours, theirs)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        if np.asarray(a).dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(np.asarray(a)), np.signbit(np.asarray(b)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_of_one_number(dtype):
    x = np.array(FLOATS).astype(dtype)
    functions = [abs, jnp.floor, jnp.ceil, jnp.trunc, lax.round, jnp.rint, jnp.isfinite, jnp.sqrt]
    _same_bits(lambda x: [f(x) for f in functions], np.abs(x))
    _same_bits(lambda x: [f(x) for f in functions[:-1]], x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_choices_and_bits(dtype):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 3, info.max // 3, info.max - 1], dtype)
    float_of = {4: jnp.float32, 8: jnp.float64}.get(x.itemsize)

    def f(x):
        y = jnp.where(x > 2, x * x, jnp.where(x == 0, x - 1, x ^ 5))
        found = [y, abs(y), x << 3, x >> 2, lax.shift_right_logical(x, x // x), ~x & y | x]
        return [*found, lax.bitcast_convert_type(y, float_of)] if float_of else found

    _same_bits(f, x)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "complex128", "bool"])
def test_choices_of_all_types(dtype):
    x = np.array([0, 1, 2.5, -3, 7, 0.1, 1e-3]).astype(dtype)
    _same_bits(lambda x: jnp.where(x == x[1], x, x[::-1]), x)
    _same_bits(lambda x: lax.select(jnp.arange(7) % 2 == 0, x, jnp.zeros_like(x)), x)


def test_single_precision_is_rounded_after_each_operation():
    x = np.random.default_rng(0).normal(size=200).astype(np.float32)
    y = x[::-1] + np.float32(1e-3)
    _same_bits(lambda x, y: [x + y, x - y, (x * y).astype(jnp.float16), x / y, (x / y) - y], x, y)


def test_what_stands_for_nothing_is_no_instruction():
    assert instructions.get("fmod") is None
    assert instructions.get("add_float64") is None  # which Numba adds as quickly


def test_arrays_live_as_long_as_numba_says():
    assert passes.of("b0 = np.empty(3, np.float64)") is passes.Allocating
    assert passes.of("t0 = x + 1") is passes.Printed
