"""Calls: native wrapper and ctypes agree, and reject what does not fit."""

import sys

import numpy as np
import pytest
from llvm_texts import LLVM, Emitted, adder, copies

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import ShapeError
from fnx.lowering.cpu.loader import executable as invoke
from fnx.lowering.cpu.loader import load
from fnx.lowering.cpu.runtime import call_wrapper_loader


def test_the_wrapper_knows_this_interpreter():
    assert call_wrapper_loader.get() is not None
    assert type(adder().fast) is type(len)


def test_three_ways_agree():
    executable = adder()
    x, y = np.linspace(0, 1, 5), np.linspace(-3, 2, 5)
    want = 2 * x + y
    (fast,) = executable.fast([ConcreteArray(x), ConcreteArray(y)])
    assert type(fast) is ConcreteArray
    assert fast.weak_type is False
    assert fast._value.flags.carray
    for out in (fast._value, *executable([x, y]), *executable.by_ctypes([x, y])):
        np.testing.assert_allclose(out, want, rtol=1e-15)
        assert out.dtype == np.float64


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_dtypes_and_ranks(dtype, shape):
    spec = [(shape, dtype, False)]
    executable = load.load(Emitted(copies([LLVM[dtype.name]])), spec, spec, 0)
    x = np.ones(shape, dtype)
    (boxed,) = executable.fast([ConcreteArray(x)])
    for out in (boxed._value, *executable([x]), *executable.by_ctypes([x])):
        assert out.dtype == dtype
        assert out.shape == shape
        assert out.tobytes() == x.tobytes()
        assert not np.shares_memory(out, x)


def test_dtype_objects_that_are_equal_but_not_the_same():
    executable = adder()
    x = np.ones(5, np.dtype("f8").newbyteorder("="))
    assert x.dtype is not np.dtype("f8")
    assert executable.fast([x, x]) is not NotImplemented
    assert executable.fast([x, x.astype(">f8")]) is NotImplemented


def test_leaves_may_be_a_tuple_and_numpy_arrays():
    executable = adder()
    x = np.ones(5)
    for leaves in ((x, x), [x, ConcreteArray(x)], (ConcreteArray(x), x)):
        (out,) = executable.fast(leaves)
        np.testing.assert_array_equal(out._value, np.full(5, 3.0))


class Odd(np.ndarray):
    """A subclass, which may do anything."""


X = np.ones(5)
MISFITS = {
    "short": (X,),
    "long": (X, X, X),
    "shape": (X, np.ones(4)),
    "rank": (X, np.ones((5, 1))),
    "scalar": (X, np.ones(())),
    "dtype": (X, np.ones(5, np.float32)),
    "int": (X, np.ones(5, np.int64)),
    "order": (X, np.ones(5, ">f8")),
    "stride": (X, np.ones(10)[::2]),
    "negative": (X, X[::-1]),
    "unaligned": (X, np.frombuffer(bytes(41), np.uint8)[1:].view(np.float64)),
    "subclass": (X, X.view(Odd)),
    "boxed shape": (ConcreteArray(np.ones(4)), X),
    "boxed weak": (ConcreteArray(X, True), X),
    "number": (X, 1.0),
    "none": (X, None),
    "list": (X, [1.0] * 5),
    "no value": (X, ConcreteArray.__new__(ConcreteArray)),
    "dict": {0: X, 1: X},
    "array": X,
    "nothing": None,
    "iterator": iter((X, X)),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_are_for_the_slow_path(name):
    executable = adder()
    before = sys.getrefcount(NotImplemented)
    assert executable.fast(MISFITS[name]) is NotImplemented
    assert abs(sys.getrefcount(NotImplemented) - before) < 3


@pytest.mark.parametrize("name", ["order", "stride", "negative", "unaligned", "subclass", "list"])
def test_the_slow_path_takes(name):
    executable = adder()
    leaves = MISFITS[name]
    want = 2 * np.asarray(leaves[0]) + np.asarray(leaves[1], np.float64)
    np.testing.assert_array_equal(executable(leaves)[0], want)
    np.testing.assert_array_equal(executable.by_ctypes(leaves)[0], want)


@pytest.mark.parametrize("name", ["short", "long", "shape", "rank", "dtype", "int"])
def test_the_slow_path_refuses(name):
    for call in (adder(), adder().by_ctypes):
        with pytest.raises(ShapeError, match=r"inputs|shape"):
            call(MISFITS[name])


@pytest.mark.parametrize("weak", [True, False, None])
def test_weak_types(weak):
    executable = adder(shape=(), weak=(weak, None), out_weak=bool(weak))
    leaves = {w: ConcreteArray(np.array(3.0), w) for w in (True, False)}
    for given, leaf in leaves.items():
        outs = executable.fast([leaf, leaf])
        if weak is not None and weak != given:
            assert outs is NotImplemented
        else:
            assert outs[0].weak_type is bool(weak)
            assert float(outs[0]) == 9.0
    bare = executable.fast([np.array(3.0), np.array(3.0)])
    assert (bare is NotImplemented) == (weak is True)


NUMBERS = [
    ("float64", 1.5, True),
    ("float64", 1, False),
    ("float64", True, False),
    ("float32", 1.1, True),
    ("int64", 2**63 - 1, True),
    ("int64", -(2**63), True),
    ("int64", 2**63, False),
    ("int64", 1.0, False),
    ("int64", True, False),
    ("int32", 2**31 - 1, True),
    ("int32", -(2**31), True),
    ("int32", 2**31, False),
    ("int8", 1, False),
    ("bool", True, True),
    ("bool", False, True),
    ("bool", 1, False),
    ("complex128", 1j, False),
]


@pytest.mark.parametrize(("kind", "number", "fits"), NUMBERS)
def test_python_numbers(kind, number, fits):
    weak = kind != "bool"
    spec = [((), kind, weak)]
    executable = load.load(Emitted(copies([LLVM[kind]])), spec, spec, 0)
    outs = executable.fast([number])
    if not fits:
        assert outs is NotImplemented
    else:
        assert outs[0]._value == np.asarray(number, kind)
        assert outs[0]._value.dtype == np.dtype(kind)
    strong = load.load(Emitted(copies([LLVM[kind]])), [((), kind, not weak)], spec, 0)
    assert strong.fast([number]) is NotImplemented
    vector = load.load(Emitted(copies([LLVM[kind]])), [((1,), kind, weak)], spec, 0)
    assert vector.fast([number]) is NotImplemented


def test_scalars_of_numpy_are_strong():
    number, spec = np.float64(2.5), [((), "float64", False)]
    (out,) = load.load(Emitted(copies(["double"])), spec, spec, 0).fast([number])
    assert out._value == 2.5
    for other in ([((), "float64", True)], [((1,), "float64", False)], [((), "int64", False)]):
        executable = load.load(Emitted(copies(["double"])), other, spec, 0)
        assert executable.fast([number]) is NotImplemented


@pytest.mark.parametrize("count", [1, 3, 40, 500])
def test_many_arrays(count):
    kinds = [list(LLVM)[k % len(LLVM)] for k in range(count)]
    specs = [((), kind, False) for kind in kinds]
    executable = load.load(Emitted(copies([LLVM[k] for k in kinds])), specs, specs, 0)
    inputs = [np.array(k % 2, dtypes.canonical(kind)) for k, kind in enumerate(kinds)]
    fast = [x._value for x in executable.fast([ConcreteArray(x) for x in inputs])]
    for outs in (fast, executable(inputs), executable.by_ctypes(inputs)):
        assert [o.tobytes() for o in outs] == [x.tobytes() for x in inputs]


def test_no_arrays_at_all():
    executable = load.load(Emitted(copies([])), [], [], 0)
    assert executable.fast([]) == []
    assert executable.fast(()) == []
    assert executable([]) == executable.by_ctypes([]) == []


def test_more_arrays_than_the_stack_bears(monkeypatch):
    monkeypatch.setattr(invoke, "_MANY", 2)
    executable = adder()
    assert type(executable.fast) is not type(len)
    (out,) = executable.fast([ConcreteArray(X), X])
    assert type(out) is ConcreteArray
    np.testing.assert_array_equal(out._value, np.full(5, 3.0))


def test_without_the_wrapper(monkeypatch):
    monkeypatch.setattr(call_wrapper_loader, "get", lambda: None)
    executable = adder()
    np.testing.assert_array_equal(executable([X, X])[0], np.full(5, 3.0))
    assert type(executable.fast((X, ConcreteArray(X)))[0]) is ConcreteArray


def test_zero_sized_arrays():
    executable = adder(shape=(0, 3))
    x = np.empty((0, 3))
    for outs in (executable([x, x]), executable.by_ctypes([x, x])):
        assert outs[0].shape == (0, 3)
    assert executable.fast([x, x])[0].shape == (0, 3)
