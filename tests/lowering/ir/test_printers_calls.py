"""Calls in the Kernel IR, of libraries, of the host and of threads, on hand-built programs."""

import ctypes

import numpy as np
import pytest
from kernels import arguments, loop, native, python

from fnx.core import scalar
from fnx.core.scalar import apply, const, load, size, var
from fnx.lowering.cpu.kernels import fft_plan
from fnx.lowering.cpu.llvm import module_printer
from fnx.lowering.ir import kernel
from fnx.lowering.ir.kernel import Buffer, Nest, Program, Ref, Store

F8 = "float64"


@pytest.mark.parametrize("run", [native, python])
def test_library_call_with_result(run):
    x, y = arguments(("x", F8, 5), ("y", F8, 5))

    def body(i):
        r = var(F8, "r")
        two = const(2, F8)
        return [
            kernel.CallLibrary("libm:pow", [load(x, i, F8), two], [], result=r),
            Store(y, i, r),
        ]

    a = np.arange(5.0)
    (out,) = run(Program("test", [x], [y], [loop(5, body)]), [a])
    np.testing.assert_array_equal(out, a * a)


@pytest.mark.parametrize("run", [native, python])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_fortran_call(run, dtype):
    n = 20
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    x, y, z = arguments(("x", dtype, n), ("y", dtype, n), ("z", dtype, n))
    i32 = lambda v: scalar.cast(size(v), "int32")
    axpy = kernel.CallLibrary(
        f"blas:{letter}axpy",
        [i32(n), const(2.5, dtype), Ref(x, size(0)), i32(1), Ref(z, size(0)), i32(1)],
        [z],
        by_reference=True,
    )
    body = [kernel.Copy(Ref(z, size(0)), Ref(y, size(0)), size(n)), axpy]
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(2, n)).astype(dtype)
    (out,) = run(Program("test", [x, y], [z], body), [a, b])
    np.testing.assert_allclose(out, 2.5 * a + b, rtol=1e-5 if letter in "sc" else 1e-14)


@pytest.mark.parametrize("run", [native, python])
def test_call_with_the_address_of_a_table(run):
    x, y = arguments(("x", "complex128", 12), ("y", "complex128", 12))
    name = "fft/3x4/1/complex128"
    work = kernel.Buffer("work", "uint8", max(fft_plan.work_bytes(name), 1), "global", 0)
    args = [kernel.Address(f"fft:{name}"), *[Ref(b, size(0)) for b in (x, y, work)]]
    call = kernel.CallLibrary("fnx:fnx_fft", args, [y, work])
    a = np.arange(12) * (1 + 2j)
    (out,) = run(Program("test", [x], [y], [call], work.size), [a])
    np.testing.assert_allclose(out.reshape(3, 4), np.fft.fft(a.reshape(3, 4)), rtol=1e-14)


@pytest.mark.parametrize("run", [native, python])
def test_host_call(run):
    x, y = arguments(("x", F8, 6), ("y", F8, 4))

    def callback(a):
        assert a.shape == (2, 2)
        return (np.linalg.inv(a),)

    call = kernel.CallHost(
        callback, [(Ref(x, size(2)), (2, 2), F8)], [(Ref(y, size(0)), (2, 2), F8)], "inv"
    )
    a = np.array([9.0, 9.0, 2.0, 1.0, 1.0, 1.0])
    (out,) = run(Program("test", [x], [y], [Nest("with host call", [call])]), [a])
    np.testing.assert_allclose(out.reshape(2, 2), np.linalg.inv(a[2:].reshape(2, 2)))


def test_host_call_raises_its_own_error():
    x, y = arguments(("x", F8, 1), ("y", F8, 1))

    def callback(a):
        raise ZeroDivisionError("from the host")

    call = kernel.CallHost(callback, [(Ref(x, size(0)), (1,), F8)], [(Ref(y, size(0)), (1,), F8)])
    with pytest.raises(ZeroDivisionError, match="from the host"):
        native(Program("test", [x], [y], [call]), [np.zeros(1)])


@pytest.mark.slow
def test_loops_ask_whether_to_stop(monkeypatch):
    """The poll is reached often enough, and its answer ends the program with 1."""
    from fnx.lowering.cpu.loader import symbols

    asked = []

    @ctypes.CFUNCTYPE(ctypes.c_int32)
    def poll():
        asked.append(1)
        return int(len(asked) == 3)

    address = ctypes.cast(poll, ctypes.c_void_p).value
    resolve = symbols.resolve
    found = {"fnx_poll": address}
    monkeypatch.setattr(symbols, "resolve", lambda s: found.get(s) or resolve(s))
    symbols.resolve.soon = lambda s: None  # no crew computes what is found here
    x, y = arguments(("x", F8, 1), ("y", F8, 1))
    i, c = var("int64", "i"), var(F8, "c")
    step = apply("sin", apply("add", c, load(x, size(0), F8)))
    body = kernel.Loop(i, size(1 << 40), [], [c], [const(0, F8)], [step], polled=True)
    from fnx.lowering.cpu.runtime import host_callbacks

    host_callbacks.keep_error(KeyboardInterrupt("stop"))
    with pytest.raises(KeyboardInterrupt):
        native(Program("test", [x], [y], [body, Store(y, size(0), c)]), [np.ones(1)])
    assert len(asked) == 3


def test_parallel_loops():
    """Rounds are shared out by fnx_parallel_for; scratch memory is the thread's own."""
    rows, n = 500, 33
    x, y, z = arguments(("x", F8, rows * n), ("scale", F8, 1), ("y", F8, rows * n))
    factor = load(y, size(0), F8)

    def row(r):
        scratch = Buffer("scratch", F8, n, "private")
        at = lambda k: apply("add", apply("mul", r, size(n)), k)
        return [
            loop(n, lambda k: [Store(scratch, k, apply("mul", load(x, at(k), F8), factor))]),
            loop(n, lambda k: [Store(z, at(k), load(scratch, apply("sub", size(n - 1), k), F8))]),
        ]

    nest = Nest("rows", [loop(rows, row, kind=kernel.LoopKind.PARALLEL)])
    p = Program("test", [x, y], [z], [kernel.Eval([factor]), nest])
    a = np.random.default_rng(0).normal(size=(rows, n))
    for run in (native, python):
        (out,) = run(p, [a.ravel(), np.array([3.0])])
        np.testing.assert_array_equal(out.reshape(rows, n), a[:, ::-1] * 3)
    assert ("symbol", "fnx_parallel_for") in module_printer.emit(p).params
