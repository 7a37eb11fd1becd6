"""Arrays of a GPU and other libraries: DLPack and __cuda_array_interface__, both ways, without a copy."""

import ctypes
import gc

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.errors import InvalidValue
from fnx.lowering.cuda import dlpack

X = np.random.default_rng(0).normal(size=(3, 5))
DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint64 float16 float32 float64 complex64 bfloat16".split()
)


class Consumer:
    """Another library's array, which reads capsules as DLPack has them."""

    def __init__(self, x):
        self.device = tuple(map(int, x.__dlpack_device__()))
        self.capsule = x.__dlpack__(stream=1, max_version=(1, 0))
        self.held = dlpack.Capsule(self.capsule)
        self.address, self.shape, self.dtype = self.held.address, self.held.shape, self.held.dtype

    def read(self):
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        raw = (ctypes.c_uint8 * size).from_address(self.address)
        return np.frombuffer(raw, self.dtype).reshape(self.shape)


class Producer:
    """Another library's array on the fake GPU, whose memory is the host's."""

    def __init__(self, value, strides=None):
        self.value, self.strides, self.asked = np.ascontiguousarray(value), strides, []
        self.freed = []

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, **_):
        self.asked.append(stream)

        class Held:
            shape, dtype = self.value.shape, self.value.dtype
            ndim, owner = self.value.ndim, self.value

        return dlpack.capsule_of(Held(), self.value.ctypes.data)


class Interface:
    """The same with __cuda_array_interface__ only."""

    def __init__(self, value, strides=None):
        self.value = value
        self.__cuda_array_interface__ = {
            "shape": value.shape,
            "typestr": value.dtype.str,
            "data": (value.ctypes.data, False),
            "strides": strides,
            "version": 3,
        }


def on_gpu(value):
    return fnx.device_put(value, fnx.devices("gpu")[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_gives_the_memory_itself(gpu, dtype):
    x = on_gpu(jnp.asarray(X * 3).astype(dtype))
    del gpu.calls[:]
    other = Consumer(x)
    assert other.device == (2, 0)
    assert other.address == x._value.memory.address
    assert (other.shape, other.dtype.name) == (x.shape, dtype)
    np.testing.assert_array_equal(other.read(), np.asarray(jnp.asarray(X * 3).astype(dtype)))
    assert not gpu.made("copy")


def test_what_was_asked_for_is_done_first(gpu):
    y = fnx.jit(lambda x: x * 2)(on_gpu(X))
    assert gpu.waiting
    np.testing.assert_array_equal(Consumer(y).read(), X * 2)


def test_memory_that_was_given_lives_on(gpu):
    x = on_gpu(X)
    other = Consumer(x)
    del x
    gc.collect()
    assert gpu.in_use >= X.nbytes
    np.testing.assert_array_equal(other.read(), X)
    del other
    gc.collect()
    gpu.wait()
    assert gpu.in_use == 0


def test_capsules_that_nobody_takes_free_their_array(gpu):
    x = on_gpu(X)
    capsule = x.__dlpack__()
    del x, capsule
    gc.collect()
    gpu.wait()
    assert gpu.in_use == 0
    assert not dlpack._given


def test_dlpack_takes_the_memory_itself(gpu):
    other = Producer(X)
    x = jnp.from_dlpack(other)
    assert x.device == fnx.devices("gpu")[0]
    assert x._value.memory.address == other.value.ctypes.data
    assert other.asked == [7]  # our stream, which waits for theirs
    np.testing.assert_array_equal(fnx.jit(lambda x: x + 1)(x), X + 1)
    np.testing.assert_array_equal(fnx.dlpack.from_dlpack(Producer(X[0])), X[0])
    np.testing.assert_array_equal(jnp.asarray(Producer(X)), X)


def test_memory_that_was_taken_is_given_back(gpu):
    x = jnp.from_dlpack(Producer(X))
    assert len(dlpack._given) == 1
    del x
    gc.collect()
    assert not dlpack._given


def test_there_and_back_is_the_same_memory(gpu):
    x = on_gpu(X)
    y = jnp.from_dlpack(x)
    assert y._value.memory.address == x._value.memory.address


def test_the_interface_of_numba_and_cupy(gpu):
    x = on_gpu(X)
    found = x.__cuda_array_interface__
    assert found["data"] == (x._value.memory.address, True)  # read only
    assert (found["shape"], found["typestr"], found["strides"]) == (X.shape, "<f8", None)
    assert not hasattr(jnp.ones(3), "__cuda_array_interface__")
    y = jnp.asarray(Interface(X))
    assert y._value.memory.address == X.ctypes.data
    np.testing.assert_array_equal(fnx.jit(lambda y: y * 2)(y), X * 2)


def test_arrays_that_are_not_contiguous_are_refused(gpu):
    with pytest.raises(InvalidValue, match=r"strides.*C-contiguous"):
        jnp.asarray(Interface(X, strides=(8, 24)))
    assert jnp.asarray(Interface(X, strides=(40, 8))).shape == X.shape


def test_a_capsule_is_used_once(gpu):
    capsule = on_gpu(X).__dlpack__()
    dlpack.Capsule(capsule)
    with pytest.raises(InvalidValue, match="used before"):
        dlpack.Capsule(capsule)


def test_small_dtypes_have_no_word(gpu):
    with pytest.raises(InvalidValue, match="no word for arrays of int4"):
        on_gpu(jnp.ones(3, "int4")).__dlpack__()


def test_numpy_reads_a_copy(gpu):
    x = on_gpu(X)
    np.testing.assert_array_equal(np.asarray(x), X)
    np.testing.assert_array_equal(np.from_dlpack(fnx.device_put(x, fnx.devices()[0])), X)


def test_rank_0_and_empty_arrays(gpu):
    for value in (np.float64(2.5), np.zeros((0, 3))):
        x = on_gpu(value)
        assert Consumer(x).shape == np.shape(value)
        back = jnp.from_dlpack(x)
        np.testing.assert_array_equal(back, value)


# --- whose memory is used when ----------------------------------------------------------------------


def test_memory_of_others_goes_back_when_no_kernel_reads_it(gpu):
    x = jnp.from_dlpack(Producer(X))
    y = fnx.jit(lambda x: x * 2, backend="cuda")(x)
    assert gpu.waiting  # the kernel has not run
    del x
    gc.collect()
    assert not gpu.waiting
    np.testing.assert_array_equal(y, X * 2)


def test_lent_memory_goes_back_when_nobody_uses_the_device(gpu):
    for lend in (Consumer, lambda y: y.__cuda_array_interface__):
        y = fnx.jit(lambda x: x * 2, backend="cuda")(X)
        held = lend(y)
        del gpu.calls[:]
        del y, held
        gc.collect()
        assert [c[0] for c in gpu.calls] == ["device sync", "free"]


def test_arrays_with_a_stream_are_waited_for(gpu):
    x = Interface(X)
    jnp.asarray(x)
    assert not gpu.made("device sync")
    x.__cuda_array_interface__["stream"] = 1
    jnp.asarray(x)
    assert gpu.made("device sync")
