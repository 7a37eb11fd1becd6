"""The transport over NCCL, with a fake of CuPy: threads for GPUs, memory of the host for theirs."""

import ctypes
import sys
import threading
import types
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import use
from fnx.errors import MissingPackage
from fnx.interpreters.spmd import spmd
from fnx.lowering.transport import nccl

N = 4
_TYPES = {
    "NCCL_INT8": "int8", "NCCL_UINT8": "uint8", "NCCL_INT32": "int32", "NCCL_UINT32": "uint32",
    "NCCL_INT64": "int64", "NCCL_UINT64": "uint64", "NCCL_FLOAT32": "float32", "NCCL_FLOAT64": "float64",
}  # fmt: skip


class Memory(np.ndarray):
    """An array of a GPU's: it has an address, and NumPy does not read it by itself."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.__array_interface__["data"][0])


def at(pointer, count, kind):
    """The numbers at an address."""
    dtype = np.dtype(kind)
    raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
    return np.frombuffer(raw, dtype)


class World:
    """The members of one communicator."""

    def __init__(self, size):
        self.barrier, self.slots = threading.Barrier(size, timeout=20), {}

    def meet(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait()
        found = dict(self.slots)
        self.barrier.wait()
        return found


class Communicator:
    worlds: ClassVar[dict] = {}
    lock = threading.Lock()

    def __init__(self, size, identity, rank):
        assert len(identity) == 128
        assert all(-128 <= c < 128 for c in identity)
        with self.lock:
            self.world = self.worlds.setdefault(identity, World(size))
        self.rank, self.size = rank, size
        self.pending = None

    def allReduce(self, a, b, count, kind, op, stream):
        rows = self.world.meet(self.rank, at(a, count, kind).copy())
        ufunc = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
        at(b, count, kind)[...] = ufunc.reduce([rows[k] for k in range(self.size)], dtype=kind)

    def allGather(self, a, b, count, kind, stream):
        rows = self.world.meet(self.rank, at(a, count, kind).copy())
        at(b, count * self.size, kind)[...] = np.concatenate([rows[k] for k in range(self.size)])

    def broadcast(self, a, b, count, kind, root, stream):
        at(b, count, kind)[...] = self.world.meet(self.rank, at(a, count, kind).copy())[root]

    def send(self, a, count, kind, peer, stream):
        GROUP.calls.append((self, "send", a, count, kind, peer))

    def recv(self, b, count, kind, peer, stream):
        GROUP.calls.append((self, "recv", b, count, kind, peer))


class Group(threading.local):
    calls = None

    def start(self):
        self.calls = []

    def end(self):
        """All sends and receives of a group at once."""
        calls, self.calls = self.calls, None
        comm = calls[0][0] if calls else None
        sent = {
            peer: at(p, n, kind).copy() for _, what, p, n, kind, peer in calls if what == "send"
        }
        everyone = (comm or THREAD.comm).world.meet((comm or THREAD.comm).rank, sent)
        for own, what, p, n, kind, peer in calls:
            if what == "recv":
                at(p, n, kind)[...] = everyone[peer][own.rank]


GROUP, THREAD = Group(), threading.local()


@pytest.fixture
def gpus(monkeypatch):
    rng = np.random.default_rng(0)
    Communicator.worlds.clear()
    lib = types.ModuleType("cupy.cuda.nccl")
    lib.get_unique_id = lambda: tuple(map(int, rng.integers(-128, 128, 128)))
    lib.NcclCommunicator = Communicator
    lib.groupStart, lib.groupEnd = GROUP.start, GROUP.end
    for name, kind in _TYPES.items():
        setattr(lib, name, kind)
    lib.NCCL_SUM, lib.NCCL_MAX, lib.NCCL_MIN = "sum", "max", "min"
    stream = types.SimpleNamespace(ptr=7, synchronize=lambda: None)
    cuda = types.SimpleNamespace(nccl=lib, get_current_stream=lambda: stream)
    cupy = types.ModuleType("cupy")
    cupy.cuda = cuda
    cupy.asarray = lambda x: np.array(x).view(Memory)
    cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Memory)
    cupy.asnumpy = np.array
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", lib)
    return cupy


def members(program, count=N):
    """What `program(transport)` gives in each of so many threads."""
    world, results, errors = World(count), [None] * count, []

    def run(rank):
        try:
            transport = nccl.connect(rank, count, lambda own: world.meet(rank, own)[0])
            THREAD.comm = transport.comm
            results[rank] = program(transport)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    if errors:
        raise errors[0]
    return results


KINDS = "float64 float32 float16 bfloat16 int8 int32 uint64 complex64 bool".split()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_methods(kind, shape, gpus):
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    everything = np.random.default_rng(1).integers(0, 5, (N, N, *shape)).astype(dtype)
    total = everything[0]
    for row in everything[1:]:
        total = (total + row).astype(dtype)

    def program(t):
        x, k = everything[t.rank], t.rank
        ring = tuple((a, (a + 1) % N) for a in range(N))
        yield t.all_reduce(x, "sum"), total
        yield t.all_gather(x), everything
        yield t.reduce_scatter(x, "sum"), total[k]
        yield t.all_to_all(x), everything[:, k]
        yield t.broadcast(x, 2), everything[2]
        yield t.permute(x, ring), everything[(k - 1) % N]
        yield t.permute(x, ((0, 3),)), everything[0] if k == 3 else np.zeros_like(x)
        if kind != "complex64":
            yield t.all_reduce(x, "max"), np.maximum.reduce(everything)
            yield t.all_reduce(x, "min"), np.minimum.reduce(everything)
        half = t.split(((0, 2), (3, 1)))
        yield half.all_gather(x), everything[[0, 2] if k in (0, 2) else [3, 1]]
        assert t.split(((0, 2), (3, 1))) is half
        t.barrier()

    for pairs in members(lambda t: list(program(t))):
        for found, expected in pairs:
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)


def test_nan(gpus):
    rows = np.array([[1.0, 2.0], [np.nan, 3.0]])
    for found in members(lambda t: t.all_reduce(rows[t.rank], "max"), 2):
        np.testing.assert_array_equal(found, [np.nan, 3.0])


def test_compiled_programs(gpus):
    rows = np.random.default_rng(2).normal(size=(N, 5))
    f = lambda x: (lax.psum(jnp.sin(x), "i"), lax.pmax(x, "i") * lax.axis_index("i"))
    expected = fnx.vmap(f, axis_name="i")(rows)

    def program(t):
        with use({"i": t}):
            return fnx.jit(spmd(f, {"i": N}))(jnp.asarray(rows[t.rank]))

    for k, found in enumerate(members(program)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b)[k], 1e-12)


def test_without_cupy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingPackage, match="pip install cupy"):
        nccl.connect(0, 1, lambda own: own)
