"""Gather, scatters, dynamic slices, sorting and random bits against NumPy and plain loops."""

from itertools import product

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.array import ConcreteArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.interpreters.linearize import linearize
from fnx.ops.linalg.fft import FFT
from fnx.ops.random.prng import RandomBits, RandomSplit, encrypt_ints, random_fold_in
from fnx.ops.reduction.sorting import Sort, TopK
from fnx.ops.structure.dynamic_slice import DynamicSlice, dynamic_slice_add, dynamic_update_slice
from fnx.ops.structure.gather import Gather, ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    as_scatter,
)
from fnx.ops.structure.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul

CLIP, FILL = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
PROMISE = GatherScatterMode.PROMISE_IN_BOUNDS  # what a[i] promises; kept inside all the same
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
ELEMENTS = GatherDimensionNumbers((), (0,), (0,))


def array(x):
    return ConcreteArray(np.asarray(x))


def run(prim, *args):
    outs = prim.apply(*map(array, args))
    return [np.asarray(o) for o in outs] if prim.multiple_results else np.asarray(outs[0])


# --- a definition of gather by loops -----------------------------------------------------------


@st.composite
def gathers(draw):
    """Valid dimension numbers, slice sizes, an operand and indices."""
    rank = draw(st.integers(1, 3))
    operand = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    axes = draw(st.permutations(range(rank)))
    lanes = tuple(sorted(axes[: draw(st.integers(0, min(1, rank - 1)))]))
    rest = [a for a in axes if a not in lanes]
    index_map = tuple(rest[: draw(st.integers(1, len(rest)))])
    collapsed = tuple(sorted(a for a in index_map if draw(st.booleans())))
    sizes = tuple(
        1 if a in collapsed or a in lanes else draw(st.integers(1, operand[a])) for a in range(rank)
    )
    batch = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]
    lane_axes = ()
    if lanes:
        at = draw(st.integers(0, len(batch)))
        batch.insert(at, operand[lanes[0]])
        lane_axes = (at,)
    windows = rank - len(collapsed) - len(lanes)
    out_rank = windows + len(batch)
    offsets = tuple(sorted(draw(st.permutations(range(out_rank)))[:windows]))
    dims = GatherDimensionNumbers(offsets, collapsed, index_map, lanes, lane_axes)
    seed = draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    indices = rng.integers(-2, 5, size=(*batch, len(index_map)))
    return dims, sizes, rng.normal(size=operand), indices


def places(dims, sizes, shape, indices, mode):
    """(index of the result, index of the operand or None) of each element."""
    gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
    kept = [a for a in range(len(shape)) if a not in gone]
    out_rank = len(kept) + indices.ndim - 1
    batch_axes = [a for a in range(out_rank) if a not in dims.offset_dims]
    for at in np.ndindex(*indices.shape[:-1]):
        start, inside = [0] * len(shape), True
        for k, a in enumerate(dims.start_index_map):
            i, limit = int(indices[(*at, k)]), shape[a] - sizes[a]
            start[a] = min(max(i, 0), limit)
            inside = inside and start[a] == i
        for a, b in zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True):
            start[a] = at[b]
        for offset in product(*(range(sizes[a]) for a in kept)):
            out, source = [0] * out_rank, list(start)
            for axis, i in zip(batch_axes, at, strict=True):
                out[axis] = i
            for axis, a, i in zip(dims.offset_dims, kept, offset, strict=True):
                out[axis] = i
                source[a] += i
            yield tuple(out), tuple(source) if inside or mode is not FILL else None


@settings(max_examples=60, deadline=None)
@given(gathers(), st.sampled_from([CLIP, FILL, PROMISE]))
def test_gather_is_its_definition(case, mode):
    dims, sizes, x, indices = case
    prim = Gather(dims, -7.0, False, mode, sizes, False)
    found = run(prim, x, indices)
    for out, source in places(dims, sizes, x.shape, indices, mode):
        assert found[out] == (-7.0 if source is None else x[source])


@settings(max_examples=60, deadline=None)
@given(gathers(), st.sampled_from([CLIP, FILL, PROMISE]))
def test_scatters_are_their_definition(case, mode):
    dims, sizes, x, indices = case
    shape = Gather(dims, 0, False, mode, sizes, False).windows(x, indices).shape
    updates = np.random.default_rng(1).uniform(0.5, 2, size=shape)
    combine = {
        ScatterAdd: lambda a, b: a + b,
        ScatterMul: lambda a, b: a * b,
        ScatterMin: min,
        ScatterMax: max,
        Scatter: lambda a, b: b,
    }
    for kind, fn in combine.items():
        expected = x.copy()
        for at, target in places(dims, sizes, x.shape, indices, mode):
            if target is not None:
                expected[target] = fn(expected[target], updates[at])
        found = run(kind(as_scatter(dims), False, mode, False), x, indices, updates)
        if kind is Scatter:  # one of the updates of a place stays
            options: dict = {}
            for at, target in places(dims, sizes, x.shape, indices, mode):
                options.setdefault(target, set()).add(updates[at])
            for t in np.ndindex(*x.shape):
                assert found[t] in options.get(t, {x[t]})
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-13)


# --- what users do with them -------------------------------------------------------------------


def test_filling_is_nan_or_the_extreme_integer():
    def outside(dtype):
        x = np.zeros(2, dtype)
        return run(Gather(ELEMENTS, None, False, FILL, (1,), False), x, np.array([[2], [0]]))[0]

    assert np.isnan(outside("float32"))
    assert np.isnan(outside("complex64"))
    assert outside("int8") == -128
    assert outside("uint16") == 65535
    assert outside("bool")


def test_an_empty_operand_gathers_fill_only():
    prim = Gather(ELEMENTS, None, False, FILL, (1,), False)
    assert np.isnan(run(prim, np.zeros(0), np.array([[0], [3]]))).all()


def test_gradient_of_gather_adds_into_repeated_places():
    x, rows = np.arange(12.0).reshape(4, 3), np.array([[1], [1], [3]])
    prim = Gather(ROWS, None, False, FILL, (1, 3), False)
    _, tape = linearize(lambda x: prim.apply(x, array(rows)), [array(x)], [True])
    ct = np.arange(9.0).reshape(3, 3)
    expected = np.zeros_like(x)
    np.add.at(expected, rows[:, 0], ct)
    np.testing.assert_array_equal(np.asarray(tape.pull([array(ct)])[0]), expected)


def test_gradient_of_set_goes_to_the_update_that_stays():
    x, u = np.zeros(3), np.array([5.0, 6.0])
    prim = Scatter(as_scatter(ELEMENTS), False, FILL, False)
    at = array([[1], [1]])
    outs, tape = linearize(lambda x, u: prim.apply(x, at, u), [array(x), array(u)], [True, True])
    gx, gu = (np.asarray(g) for g in tape.pull([array([1.0, 1.0, 1.0])]))
    np.testing.assert_array_equal(gx, [1, 0, 1])
    np.testing.assert_array_equal(gu, (u == np.asarray(outs[0])[1]).astype(float))


def test_gradient_of_products_with_zeros():
    x, u = np.array([2.0, 3.0]), np.array([0.0, 5.0, 0.0, 7.0])
    at = array([[0], [0], [1], [0]])
    prim = ScatterMul(as_scatter(ELEMENTS), False, FILL, False)
    _, tape = linearize(lambda x, u: prim.apply(x, at, u), [array(x), array(u)], [True, True])
    gx, gu = (np.asarray(g) for g in tape.pull([array([1.0, 1.0])]))
    np.testing.assert_array_equal(gx, [0, 0])
    np.testing.assert_array_equal(gu, [2 * 5 * 7, 0, 3, 0])


@pytest.mark.parametrize("start", [-5, 0, 2, 3, 99])
def test_dynamic_slices_move_inside(start):
    x, u = np.arange(5.0), np.array([10.0, 20.0])
    k = min(max(start, 0), 3)
    np.testing.assert_array_equal(run(DynamicSlice((2,)), x, start), x[k : k + 2])
    updated = run(dynamic_update_slice, x, u, start)
    added = run(dynamic_slice_add, x, u, start)
    expected = x.copy()
    expected[k : k + 2] = u
    np.testing.assert_array_equal(updated, expected)
    expected[k : k + 2] += x[k : k + 2]
    np.testing.assert_array_equal(added, expected)
    np.testing.assert_array_equal(x, np.arange(5.0))


def test_errors_say_what_does_not_fit():
    with pytest.raises(TypeMismatch, match="integer dtype"):
        run(Gather(ELEMENTS, None, False, CLIP, (1,), False), np.zeros(3), np.zeros((2, 1)))
    with pytest.raises(ShapeError, match="last axis of the indices"):
        run(Gather(ELEMENTS, None, False, CLIP, (1,), False), np.zeros(3), np.zeros((2, 2), int))
    prim = ScatterAdd(as_scatter(ELEMENTS), False, CLIP, False)
    with pytest.raises(ShapeError, match="need updates of shape"):
        run(prim, np.zeros(3), np.zeros((2, 1), int), np.zeros(3))
    with pytest.raises(InvalidValue, match="unknown mode"):
        GatherScatterMode.from_any("wrap around")
    with pytest.raises(ShapeError, match="does not fit"):
        DynamicSlice((4,)).abstract(array(np.zeros(3)).aval, array(0).aval)


# --- sorting -----------------------------------------------------------------------------------


def test_sort_puts_nan_last_and_keeps_pairs():
    x = np.array([3.0, np.nan, -1.0, np.inf, -np.inf, 0.0])
    np.testing.assert_array_equal(run(Sort(0), x)[0], np.sort(x))
    keys, values = run(Sort(0), np.array([2, 1, 2, 1]), np.array([0, 1, 2, 3]))
    assert keys.tolist() == [1, 1, 2, 2]
    assert values.tolist() == [1, 3, 0, 2]


def test_sort_by_two_keys_is_lexsort():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, 20), rng.integers(0, 4, 20)
    order = np.lexsort((b, a))
    first, second, third = run(Sort(0, num_keys=2), a, b, np.arange(20))
    np.testing.assert_array_equal(first, a[order])
    np.testing.assert_array_equal(second, b[order])
    np.testing.assert_array_equal(third, order)


def test_argsort_and_top_k():
    x = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, np.nan, 5.0, 5.0]])
    places = array(np.broadcast_to(np.arange(x.shape[1]), x.shape))
    order = Sort(1, True, 1)(array(x), places)[1]
    np.testing.assert_array_equal(np.asarray(order), np.argsort(x, 1, kind="stable"))
    values, at = run(TopK(3, 1), x)
    np.testing.assert_array_equal(values, [[3, 3, 2], [np.nan, 5, 5]])
    np.testing.assert_array_equal(at, [[0, 2, 3], [1, 2, 3]])
    assert at.dtype == np.int32


# --- random bits: the known answers of the Random123 distribution ------------------------------


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(key, counter, expected):
    assert encrypt_ints(*key, *counter) == expected


@pytest.mark.parametrize("n", [1, 3, 10, 11, 40, 70_000])
def test_bits_are_encryptions_of_their_positions(n):
    key = np.array([17, 0xDEADBEEF], np.uint32)
    found = run(RandomBits(32, (n,)), key)
    wide = run(RandomBits(64, (n,)), key)
    for i in {0, n // 2, n - 1}:
        high, low = encrypt_ints(*key.tolist(), 0, i)
        assert found[i] == high ^ low
        assert wide[i] == high << 32 | low
    assert run(RandomSplit((n,)), key)[n - 1].tolist() == list(
        encrypt_ints(*key.tolist(), 0, n - 1)
    )
    assert run(random_fold_in, key, np.uint32(n)).tolist() == list(
        encrypt_ints(*key.tolist(), 0, n)
    )


def test_narrow_bits_are_the_low_ones_of_32():
    key = np.array([1, 2], np.uint32)
    wide = run(RandomBits(32, (50,)), key)
    np.testing.assert_array_equal(run(RandomBits(8, (50,)), key), wide.astype(np.uint8))
    np.testing.assert_array_equal(run(RandomBits(16, (50,)), key), wide.astype(np.uint16))


def test_keys_are_checked():
    with pytest.raises(TypeMismatch, match="uint32"):
        run(RandomBits(32, (2,)), np.zeros(2))
    with pytest.raises(ShapeError, match="two words"):
        run(RandomSplit((2,)), np.zeros(3, np.uint32))


# --- Fourier transforms ------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(4,), (5,), (3, 4), (2, 3, 5)])
def test_fourier_transforms_are_scipys(lengths):
    rng = np.random.default_rng(0)
    shape, axes = (2, *lengths), tuple(range(1, 1 + len(lengths)))
    z = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    np.testing.assert_array_equal(run(FFT("fft", lengths), z), scipy.fft.fftn(z, axes=axes))
    np.testing.assert_array_equal(run(FFT("ifft", lengths), z), scipy.fft.ifftn(z, axes=axes))
    half = run(FFT("rfft", lengths), z.real)
    np.testing.assert_array_equal(half, scipy.fft.rfftn(z.real, axes=axes))
    np.testing.assert_allclose(run(FFT("irfft", lengths), half), z.real, atol=1e-14)
