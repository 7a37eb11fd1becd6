"""Native kernels against NumPy: convolutions, reductions, transposed access, 16-bit floats, bits."""

import numpy as np
import pytest
from kernels import program

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.core import dtypes
from fnx.lowering.cpu.processor import features
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop

BFLOAT16 = dtypes.bfloat16
DTYPES = [np.float64, np.float32, np.int32, np.int8, np.uint16, np.complex128, np.float16, BFLOAT16]
TOLERANCE = {
    "float64": 1e-13, "float32": 3e-6, "complex128": 1e-13, "float16": 2e-3, "bfloat16": 1e-2,
}  # fmt: skip
CHANNELS_LAST, CHANNELS_FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")

pytestmark = pytest.mark.usefixtures("checked")


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 9, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def agree(native, expected):
    """Equal integers and places of NaN; floats within the tolerance of their dtype."""
    native, expected = np.asarray(native), np.asarray(expected)
    assert native.dtype == expected.dtype
    assert native.shape == expected.shape
    if native.dtype.kind in "biu":
        np.testing.assert_array_equal(native, expected)
        return
    wide = np.complex128 if native.dtype.kind == "c" else np.float64
    scale = max(1.0, float(np.max(np.abs(expected.astype(wide)), initial=0.0)))
    np.testing.assert_allclose(
        native.astype(wide),
        expected.astype(wide),
        rtol=0,
        atol=TOLERANCE[native.dtype.name] * scale,
    )


def same(f, *arrays):
    """`f` compiled and `f` evaluated primitive by primitive."""
    given = [fnp.asarray(a) for a in arrays]
    native, eager = fnx.jit(f)(*given), f(*given)
    for a, b in zip(fnx.tree.leaves(native), fnx.tree.leaves(eager), strict=True):
        agree(a, b)


# --- convolutions ------------------------------------------------------------------------------

CONVOLUTIONS = {
    "plain": ((2, 12, 12, 3), (3, 3, 3, 16), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "edges": ((2, 12, 12, 3), (3, 3, 3, 16), (1, 1), "SAME", None, None, CHANNELS_LAST),
    "odd": ((2, 13, 11, 5), (5, 3, 5, 6), (2, 2), "SAME", None, None, CHANNELS_LAST),
    "cropped": ((2, 13, 11, 5), (5, 3, 5, 24), (2, 1), [(1, 2), (0, -1)], None, (2, 1), CHANNELS_LAST),
    "holes": ((2, 13, 11, 5), (3, 3, 5, 10), (1, 1), [(1, 2), (3, 4)], (2, 3), None, CHANNELS_LAST),
    "more holes than taps": (
        (2, 13, 11, 5), (3, 2, 5, 10), (1, 1), [(0, 1), (2, 3)], (4, 3), None, CHANNELS_LAST,
    ),
    "holes and strides": (
        (2, 5, 13, 11), (16, 5, 4, 5), (1, 2), [(-1, 2), (2, 3)], (2, 2), None, CHANNELS_FIRST,
    ),
    "holes in both": (
        (2, 5, 13, 11), (16, 5, 4, 5), (1, 1), [(5, 5), (7, 8)], (2, 4), (1, 2), CHANNELS_FIRST,
    ),
    "one feature": ((2, 7, 9, 4), (3, 3, 4, 1), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "pointwise": ((2, 7, 9, 64), (1, 1, 64, 32), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "channels first": ((2, 5, 28, 28), (7, 5, 3, 3), (1, 1), "SAME", None, None, CHANNELS_FIRST),
    "strided, channels first": (
        (2, 5, 28, 28), (32, 5, 3, 3), (2, 2), "SAME", None, None, CHANNELS_FIRST,
    ),
    "depthwise": ((3, 10, 9, 32), (3, 3, 1, 32), (1, 1), "SAME", None, None, CHANNELS_LAST, 32),
    "depthwise, odd": ((3, 10, 9, 6), (3, 3, 1, 6), (1, 1), "SAME", None, None, CHANNELS_LAST, 6),
    "groups": ((3, 8, 10, 9), (12, 2, 3, 3), (1, 1), "SAME", None, None, CHANNELS_FIRST, 4),
    "groups of the batch": (
        (4, 8, 10, 9), (12, 8, 3, 3), (1, 1), "SAME", None, None, CHANNELS_FIRST, 1, 2,
    ),
    "no batch": ((0, 10, 9, 8), (3, 3, 8, 32), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "no channels": ((2, 10, 9, 0), (3, 3, 0, 32), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "no windows": ((2, 2, 9, 8), (3, 3, 8, 32), (1, 1), "VALID", None, None, CHANNELS_LAST),
    "one dimension": ((2, 40, 3), (5, 3, 7), (1,), "SAME", None, None, ("NWC", "WIO", "NWC")),
    "three dimensions": (
        (2, 6, 7, 8, 3), (2, 3, 2, 3, 9), (1, 1, 1), "SAME", None, None, ("NDHWC", "DHWIO", "NDHWC"),
    ),
}  # fmt: skip


def convolution(strides, padding, holes, reach, layout, groups=1, batches=1):
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, padding, holes, reach, layout, groups, batches
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.complex64, np.float16, BFLOAT16])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name, dtype):
    shape, kernel, *how = CONVOLUTIONS[name]
    TOLERANCE.setdefault("complex64", 3e-6)
    same(convolution(*how), numbers(shape, dtype), numbers(kernel, dtype, 1))


@pytest.mark.parametrize(
    "name",
    ["odd", "cropped", "strided, channels first", "depthwise", "groups", "groups of the batch"],
)
def test_gradient_of_a_convolution(name):
    shape, kernel, *how = CONVOLUTIONS[name]
    f = convolution(*how)
    slope = fnx.grad(lambda x, w: fnp.sum(fnp.sin(f(x, w))), (0, 1))
    same(slope, numbers(shape, np.float64), numbers(kernel, np.float64, 1))


@pytest.mark.parametrize("shape", [(1, 1, 3, 3), (2, 1, 2, 2), (1, 1, 4, 4), (1, 1, 1, 1)])
def test_a_small_kernel_that_the_program_computes(shape):
    f = convolution((1, 1), "SAME", None, None, CHANNELS_FIRST)
    x, w = numbers((1, 1, 24, 21), np.float64), numbers(shape, np.float64, 1)
    same(lambda x, w: f(x, fnp.sin(w)), x, w)
    same(lambda x, w: f(x, w[:, :, ::2, ::2]) + fnp.sum(w[:, :, ::2, ::2]), x, w)
    stretched = convolution((1, 1), [(1, 2), (1, 2)], (2, 2), None, CHANNELS_FIRST)
    same(fnx.grad(lambda x, w: fnp.sum(fnp.sin(stretched(x, w))), (0, 1)), x, w)


def test_wide_channels_overlap_tiles():
    """Lanes in pairs of vectors, with an overlapping last tile in every axis."""
    f = convolution((1, 1), "VALID", None, None, CHANNELS_LAST)
    same(f, numbers((1, 17, 19, 7), np.float32), numbers((2, 3, 7, 104), np.float32, 1))


@pytest.mark.own_code
@pytest.mark.parametrize("channels", [16, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accumulators_fit_in_registers_with_what_they_are_made_of(channels, dtype):
    """Those that do not are stored and loaded again in each round of the innermost loop."""
    f = convolution((1, 1), "VALID", None, None, CHANNELS_LAST)
    x, w = numbers((1, 20, 20, 8), dtype), numbers((3, 3, 8, channels), dtype, 1)
    written = set().union(*(traversal.all_writes(s) for s in program(f, x, w).body))
    rows = [b for b in written if b.space == "private"]
    held = sum(b.size for b in rows) * 8 * np.dtype(dtype).itemsize
    room = features.vector_bits() * features.vector_registers()
    enough = (
        8 * features.vector_bits()
    )  # sums under way, so that two units need not wait for theirs
    assert len(rows) > 1
    assert min(room / 3, enough) <= held <= 3 * room / 4


# --- reductions --------------------------------------------------------------------------------

REDUCTIONS = [
    ((50, 8), 1), ((50, 8), 0), ((50, 3), 1), ((50, 4), 0), ((50, 13), 0), ((50, 13), 1),
    ((50, 16), 0), ((50, 16), 1), ((50, 17), 0), ((7, 5, 2, 2), (2, 3)), ((20, 5, 8), (0, 1)),
    ((20, 8, 5), (0, 2)), ((40, 40, 9), 2), ((40, 40, 9), 1), ((8, 500), 0), ((33, 1, 12), 0),
    ((1, 50, 5, 1), 1), ((0, 8), 0), ((0, 8), 1), ((50, 0), 1), ((1000,), 0), ((30, 40), None),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*DTYPES, np.bool_])
@pytest.mark.parametrize(("shape", "axis"), REDUCTIONS)
def test_reductions(shape, axis, dtype):
    x = numbers(shape, dtype)
    names = ["any"] if x.dtype == np.bool_ else ["sum", "any"]
    if x.dtype.kind != "c" and x.size:
        names += ["max", "min"]
        names += [] if isinstance(axis, tuple) else ["argmax"]

    def f(x):
        x = x ^ True if x.dtype == np.bool_ else x + x
        return [getattr(fnp, name)(x, axis=axis) for name in names], x

    same(f, x)


def test_products_of_rows():
    for shape, axis in REDUCTIONS:
        same(lambda x, axis=axis: fnp.prod(1 + x / 64, axis=axis), numbers(shape, np.float64))


@pytest.mark.parametrize("shape", [1 << 19, 1_000_003, (1000, 1009), (67, 20_000), (7, 200_001)])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_])
def test_large_reductions_are_made_of_parts(shape, dtype):
    x = numbers(shape, dtype)

    def f(x):
        y = x ^ True if x.dtype == np.bool_ else x + x
        return fnp.sum(x, dtype=int if x.dtype == np.bool_ else None), fnp.max(y), y

    same(f, x)
    report = fnx.jit(f).lower(fnp.asarray(x)).as_text("kernel")
    assert "parallel" in report


@pytest.mark.parametrize(
    ("shape", "axis"), [((12, 5), 0), ((12, 50), 0), ((40, 6), 1), ((200,), 0), ((3, 4), 0)]
)
def test_reductions_of_two_values_that_read_each_other(shape, axis):
    def better(one, two):
        later = (two[0] > one[0]) | ((two[0] == one[0]) & (two[1] < one[1]))
        return fnp.where(later, two[0], one[0]), fnp.where(later, two[1], one[1])

    def f(x):
        places = lax.broadcasted_iota("int32", x.shape, axis)
        return lax.reduce((x, places), (np.float64(-np.inf), np.int32(0)), better, (axis,))

    x = np.random.default_rng(0).integers(0, 5, shape).astype(float)
    same(f, x)
    np.testing.assert_array_equal(fnx.jit(f)(x)[1], np.argmax(x, axis))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_extrema_propagate_nan(dtype):
    for shape, axis in [((50, 8), 1), ((50, 8), 0), ((40, 40), 0), ((1 << 19,), 0)]:
        x = numbers(shape, dtype)
        x.flat[11] = np.nan
        for name in ("max", "min"):
            native = np.asarray(fnx.jit(lambda x, n=name, a=axis: getattr(fnp, n)(x, axis=a))(x))
            np.testing.assert_array_equal(native, getattr(np, name)(x, axis=axis))


def test_rows_are_normalised():
    def f(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5), fnx.nn.softmax(x)

    for shape in [(40, 64), (7, 1000), (300, 5), (3, 4)]:
        same(f, numbers(shape, np.float64))


# --- transposed access -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, np.bool_])
@pytest.mark.parametrize(
    "shape",
    [
        *[(700, 633), (500, 3, 501), (5, 1000), (1000, 5), (3, 20, 30, 40), (1, 900), (41, 0)],
        *[(64, 64), (130, 128), (16, 16, 16), (9, 512)],
    ],
)
def test_transposes(shape, dtype):
    x = numbers(shape, dtype)
    agree(fnx.jit(fnp.transpose)(x), np.ascontiguousarray(x.T))
    axes = (*range(1, x.ndim), 0)
    agree(fnx.jit(lambda x: fnp.transpose(x, axes))(x), np.ascontiguousarray(x.transpose(axes)))


@pytest.mark.parametrize(("n", "loops"), [(32, 2), (64, 4), (100, 2), (128, 4)])
def test_transposes_go_tile_by_tile_where_lines_would_not_stay(n, loops):
    """Rows of 512 and 1024 bytes crowd in few sets of a cache."""
    found = program(lambda x: x.T * 2.0, numbers((n, n), np.float64))
    assert sum(isinstance(s, Loop) for s in traversal.statements(found.body)) == loops


@pytest.mark.parametrize("n", [60, 500, 513])
def test_one_transposed_operand(n):
    same(
        lambda x, y: fnp.sin(x.T) * y + x, numbers((n, n), np.float64), numbers((n, n), np.float64)
    )


# --- 16-bit floats, bits -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_products_of_16_bit_floats_are_summed_in_float32(dtype):
    x, y = numbers((60, 500), dtype), numbers((500, 40), dtype, 1)
    agree(fnx.jit(fnp.matmul)(x, y), (x.astype(np.float32) @ y.astype(np.float32)).astype(dtype))


BITS = [np.int8, np.uint16, np.float16, BFLOAT16, np.int32, np.float32, np.uint64, np.float64]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("new", BITS)
@pytest.mark.parametrize("old", BITS)
def test_bits_of_another_width(old, new):
    bits = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    x = bits.view(old) if np.dtype(old).itemsize != 2 else bits.view(np.uint16).view(old)
    x = np.where(x == x, x, np.zeros_like(x))  # the payload of a NaN may change
    ratio = np.dtype(new).itemsize // np.dtype(old).itemsize
    if ratio > 1:
        x = x.reshape(*x.shape[:-1], -1, ratio)
    f = fnx.jit(lambda x: lax.bitcast_convert_type(x, new))
    native, expected = np.asarray(f(x)), np.asarray(lax.bitcast_convert_type(fnp.asarray(x), new))
    assert native.shape == expected.shape
    equal = native.view(np.uint8) == expected.view(np.uint8)
    with np.errstate(invalid="ignore"):
        nan = native != native
    assert np.all(equal.reshape(*native.shape, -1).all(-1) | nan)
    assert "host" not in fnx.jit(f).lower(x).as_text("kernel")


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64])
@pytest.mark.parametrize("exponent", [3, 5, 8, 11])
@pytest.mark.parametrize("mantissa", [0, 2, 7, 10, 23])
def test_reduced_precision(dtype, exponent, mantissa):
    x = numbers(400, dtype) * np.exp2(np.linspace(-14, 14, 400)).astype(dtype)
    x[:4] = [np.inf, -np.inf, np.nan, -0.0]
    f = lambda x: lax.reduce_precision(x, exponent, mantissa)
    native, expected = np.asarray(fnx.jit(f)(x)), np.asarray(f(fnp.asarray(x)))
    np.testing.assert_array_equal(native.astype(np.float64), expected.astype(np.float64))
    assert "host" not in fnx.jit(f).lower(x).as_text("kernel")


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float64, 16), (np.float32, 8)])
@pytest.mark.parametrize("name", ["bessel_i0e", "bessel_i1e"])
def test_bessel_functions(name, dtype, ulps):
    special = pytest.importorskip("scipy.special")
    around = np.nextafter(dtype(8), dtype([0, 9]))
    x = np.concatenate([np.linspace(-40, 40, 4001), np.geomspace(1e-30, 1e30, 500), [8.0, np.inf]])
    x = np.concatenate([x.astype(dtype), around])
    native = np.asarray(fnx.jit(getattr(lax, name))(x)).astype(np.float64)
    exact = getattr(special, name.removeprefix("bessel_"))(x.astype(np.float64))
    inside = np.isfinite(x)
    np.testing.assert_allclose(
        native[inside], exact[inside], rtol=ulps * np.finfo(dtype).eps, atol=0
    )
    assert native[~inside] == 0
    assert np.isnan(fnx.jit(getattr(lax, name))(dtype(np.nan)))


# --- updates here and there -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex128, np.float16])
@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("n", [256, 300, 5000])
def test_scatters_block_by_block(n, mode, dtype):
    rng = np.random.default_rng(0)
    where, values = rng.integers(-60, 70, n), numbers(n, dtype)

    def f(where, values):
        zeros = fnp.zeros(50, dtype)
        table = fnp.zeros((20, 50), dtype).at[1:3, where].add(values, mode=mode)
        return (
            zeros.at[where].add(1, mode=mode),
            zeros.at[where].set(values + values, mode=mode),
            table if np.dtype(dtype).itemsize > 2 else zeros,  # sums of 16 bits depend on the order
        )

    same(f, where, values)
    reference = np.zeros(50, np.int64)
    at = np.clip(where + 50 * (where < 0), 0, 49) if mode == "clip" else where + 50 * (where < 0)
    np.add.at(reference, at[(at >= 0) & (at < 50)], 1)
    counts = fnx.jit(lambda i: fnp.zeros(50, int).at[i].add(1, mode=mode))(where)
    np.testing.assert_array_equal(np.asarray(counts), reference)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex128"])
@pytest.mark.parametrize("length", [20, 63, 64, 131, 255, 256, 257, 300, 1000, 1029])
def test_convolutions_along_one_axis(length, dtype):
    """Tiles of several vectors along the only axis, the last of which overlaps the one before."""
    rng = np.random.default_rng(length)
    x, k = ((rng.normal(size=n) * 9).astype(dtype) for n in (length, 5))
    for mode in ("valid", "same", "full"):
        found = fnx.jit(lambda x, k, mode=mode: fnp.convolve(x, k, mode))(x, k)
        tolerance = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found, np.convolve(x, k, mode), rtol=tolerance, atol=1e-3)


@pytest.mark.own_code
def test_a_long_sum_of_products_has_several_vectors_under_way():
    x, k = np.ones(4000), np.ones(64)
    text = fnx.jit(lambda x, k: fnp.convolve(x, k, "valid")).lower(x, k).as_text("kernel")
    assert text.count("  private ") >= 2


@pytest.mark.own_code
def test_rows_that_are_pages_apart_are_few_in_a_tile():
    w = np.ones((1, 1, 3, 3))
    f = lambda x: lax.conv_general_dilated(x, w, (1, 1), "VALID")
    text = lambda side: fnx.jit(f).lower(np.ones((1, 1, 90, side))).as_text("kernel")
    assert 1 < text(512).count("  private ") <= 6
    assert text(512).count("  private ") <= text(500).count("  private ")
    x = np.random.default_rng(3).normal(size=(1, 1, 20, 512))
    same(f, x)


@pytest.mark.parametrize(("sides", "taps"), [((300,), (5,)), ((20, 30), (3, 3)), ((40,), (16,))])
def test_gradient_of_a_few_taps_has_terms_in_the_lanes_of_vectors(sides, taps):
    """One sum for each tap, over all of the signal; a vector of taps would wait for each term."""
    x, w = numbers((1, 1, *sides), np.float64), numbers((1, 1, *taps), np.float64, 1)
    strides = (1,) * len(sides)
    f = lambda w: fnp.sum(fnp.sin(lax.conv_general_dilated(x, w, strides, "SAME")))
    text = fnx.jit(fnx.grad(f)).lower(w).as_text("kernel")
    sums = [line for line in text.split("\n") if "# reassociate" in line]
    assert max([line.count(" = 0.0") for line in sums], default=0) == w.size
    same(fnx.grad(f), w)
