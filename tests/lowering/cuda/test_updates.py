"""Updates of places here and there: the last one stays, sums are added in order, by whatever thread."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp

RNG = np.random.default_rng(0)
FEW, MANY = 20, 500  # places: several updates of each, and more places than updates
COUNT = 45
OPERATIONS = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}


def values(shape, dtype):
    x = RNG.normal(size=shape) * 10
    return jnp.asarray(x + 1j * x[::-1] if dtype.startswith("complex") else x).astype(dtype)


def kernels(f, *args):
    return fnx.jit(f, backend="cuda").lower(*args).as_text("cuda")


def bits(f, *args):
    found = np.asarray(fnx.jit(f, backend="cuda")(*args))
    return found, found.view("u1")


@pytest.mark.parametrize("size", [FEW, MANY])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "bool", "complex128"])
def test_the_last_of_several_stays(gpu, size, dtype):
    index = np.concatenate([RNG.integers(-3, 3, COUNT - 5), RNG.integers(-size, size, 5)])
    x = values(COUNT, dtype)
    wanted = np.zeros(size, np.asarray(x).dtype)
    for i, v in zip(index, np.asarray(x), strict=True):
        wanted[i] = v
    found, raw = bits(lambda i, x: jnp.zeros(size, dtype).at[i].set(x), index, x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(raw, wanted.view("u1"))
    assert "1x1 blocks of 1x1 threads" not in kernels(
        lambda i, x: jnp.zeros(size, dtype).at[i].set(x), index, x
    )


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "uint8"])
def test_many_places_are_updated_in_the_order_of_the_program(gpu, name, dtype):
    if dtype == "complex64" and name in ("max", "min"):
        pytest.skip("complex numbers have no order")
    index = np.concatenate([RNG.integers(-3, 3, COUNT - 9), RNG.integers(-MANY, MANY, 9)])
    x = values(COUNT, dtype)
    f = lambda i, x: getattr(jnp.ones(MANY, dtype).at[i], name)(x)
    wanted = np.ones(MANY, np.asarray(x).dtype)
    OPERATIONS[name].at(wanted, index, np.asarray(x))
    found, raw = bits(f, index, x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(raw, wanted.view("u1"))  # as one thread adds them
    assert "in their order" in kernels(f, index, x)


def test_few_places_are_updated_in_copies(gpu):
    index, x = RNG.integers(0, FEW, COUNT), values(COUNT, "float64")
    f = lambda i, x: jnp.zeros(FEW).at[i].add(x)
    assert "in copies" in kernels(f, index, x)
    wanted = np.zeros(FEW)
    np.add.at(wanted, index, np.asarray(x))
    np.testing.assert_allclose(bits(f, index, x)[0], wanted, rtol=1e-14)


def test_integers_are_added_by_atomic_operations(gpu):
    index = RNG.integers(0, MANY, COUNT)
    f = lambda i: jnp.zeros(MANY, "int64").at[i].add(i)
    assert "cuda.atomic.add" in kernels(f, index)
    wanted = np.zeros(MANY, "int64")
    np.add.at(wanted, index, index)
    np.testing.assert_array_equal(bits(f, index)[0], wanted)


@pytest.mark.parametrize("count", [64, 117])  # whole rounds of both parts, and some beyond
@pytest.mark.parametrize("dtype", ["int32", "uint64", "int64"])
@pytest.mark.parametrize("name", ["add", "max"])
def test_few_places_are_added_up_in_shared_memory(gpu, count, dtype, name):
    index = RNG.integers(-3, 12, count)  # some are outside
    x = jnp.asarray(RNG.integers(0, 1 << 40, count)).astype(dtype)
    f = lambda i, x: getattr(jnp.ones(11, dtype).at[i], name)(x, mode="drop")
    assert "in shared memory" in kernels(f, index, x)
    wanted = np.ones(11, dtype)
    inside = index < 11
    OPERATIONS[name].at(wanted, index[inside], np.asarray(x)[inside])
    gpu.watches = True
    np.testing.assert_array_equal(bits(f, index, x)[0], wanted)
    assert not gpu.races


def test_counts_of_a_block_are_of_32_bits(gpu):
    index = RNG.integers(0, 40, (8, 12))
    f = lambda i: jnp.zeros(40, "int64").at[i].add(1)
    assert "counts = cuda.shared.array(40, numba.int32)" in kernels(f, index)
    np.testing.assert_array_equal(bits(f, index)[0], np.bincount(index.ravel(), minlength=40))
    great = lambda i: jnp.zeros(40, "int64").at[i].add(1 << 30)
    assert "counts = cuda.shared.array(40, numba.int64)" in kernels(great, index)
    np.testing.assert_array_equal(bits(great, index)[0], bits(f, index)[0] << 30)


@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
@pytest.mark.parametrize("name", ["add", "set"])
def test_rows_and_places_out_of_range(gpu, mode, name):
    index = (
        RNG.integers(0, 60, COUNT) if mode == "promise_in_bounds" else RNG.integers(0, 70, COUNT)
    )
    rows = values((COUNT, 3), "float64")
    f = lambda i, x: getattr(jnp.ones((60, 4)).at[i, 1:], name)(x, mode=mode)
    np.testing.assert_allclose(bits(f, index, rows)[0], f(index, rows), rtol=1e-14)


def test_gradients_of_gathers(gpu):
    index, x = RNG.integers(0, MANY, (5, 9)), values(MANY, "float64")
    f = fnx.grad(lambda x: jnp.sum(jnp.sin(x[index]) * index))
    np.testing.assert_allclose(bits(f, x)[0], f(x), rtol=1e-12, atol=1e-12)


def test_members_update_arrays_of_their_own(gpu):
    index, x = RNG.integers(0, MANY, (4, COUNT)), values((4, COUNT), "float64")
    f = fnx.vmap(lambda i, x: (jnp.zeros(MANY).at[i].add(x), jnp.zeros(MANY).at[i].set(x)))
    for a, b in zip(fnx.jit(f, backend="cuda")(index, x), f(index, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_same_bits_from_run_to_run(gpu):
    index, x = RNG.integers(0, 40, COUNT), values(COUNT, "float32")
    for size in (40, MANY):
        f = lambda i, x, n=size: jnp.zeros(n, "float32").at[i].add(x)
        np.testing.assert_array_equal(bits(f, index, x)[1], bits(f, index, x)[1])


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex128"])
@pytest.mark.parametrize("shape", [(COUNT,), (COUNT, 3)])
def test_sorted_updates_are_not_sorted_again(gpu, dtype, shape):
    index = (
        np.sort(RNG.integers(-3, 12, COUNT)) * 3
    )  # negative ones, and those from 20 on, are dropped
    x = values(shape, dtype)
    f = lambda i, x: fnx.ops.segment_sum(x, i, 20, indices_are_sorted=True)
    text = kernels(f, index, x)
    assert "run by run" in text
    assert "in their order" not in text
    wanted = np.zeros((20, *shape[1:]), np.asarray(x).dtype)
    inside = (index >= 0) & (index < 20)
    np.add.at(wanted, index[inside], np.asarray(x)[inside])
    gpu.watches = True
    np.testing.assert_array_equal(bits(f, index, x)[0], wanted)
    assert not gpu.races
