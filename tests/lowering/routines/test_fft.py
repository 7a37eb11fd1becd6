"""Fourier transforms inside compiled programs: no call of the host, the numbers of NumPy."""

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.lowering.cpu.jit import code_cache, compiler
from fnx.lowering.cpu.kernels import fft_executor, fft_plan, pocketfft
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.routines import fft
from fnx.lowering.cpu.runtime import thread_pool

pytestmark = pytest.mark.own_code
_rng = np.random.default_rng(0)

# Those of passes (products of small primes that fill vectors), and those of PocketFFT.
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 30, 32, 48, 64, 72, 80, 88, 96, 100, 104, 112, 128]
LENGTHS += [15, 45, 150, 225, 176, 208, 210, 256, 352, 509, 512, 1000, 1001, 1024, 1584, 2048, 4096]


def _real(*shape):
    return _rng.normal(size=shape)


def _complex(*shape):
    return _real(*shape) + 1j * _real(*shape)


def _compiled(f, *args):
    """The result of jit, after a look at the report."""
    report = fnx.jit(f).lower(*args).compile().report()
    assert "host call" not in report, report
    assert "library call fnx:fnx_fft" in report
    return np.asarray(fnx.jit(f)(*args))


def _close(found, expected, eps=2.3e-16):
    assert found.shape == expected.shape
    error = np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-300)
    assert error < 8 * eps


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("batch", [(), (3,), (2, 9)])
def test_lengths(n, batch):
    x, r, half = _complex(*batch, n), _real(*batch, n), _complex(*batch, n // 2 + 1)
    _close(_compiled(jnp.fft.fft, x), np.fft.fft(x))
    _close(_compiled(jnp.fft.ifft, x), np.fft.ifft(x))
    _close(_compiled(jnp.fft.rfft, r), np.fft.rfft(r))
    _close(_compiled(lambda x: jnp.fft.irfft(x, n), half), np.fft.irfft(half, n))


@pytest.mark.parametrize(
    "shape",
    [(4, 6), (5, 3, 8), (16, 32), (2, 3, 4, 5), (33, 40), (64, 64), (8, 2), (30, 35), (13, 11, 9)],
)
def test_several_axes(shape):
    x, r = _complex(*shape), _real(*shape)
    _close(_compiled(jnp.fft.fftn, x), np.fft.fftn(x))
    _close(_compiled(jnp.fft.ifftn, x), np.fft.ifftn(x))
    _close(_compiled(jnp.fft.fft2, x), np.fft.fft2(x))
    half = _compiled(jnp.fft.rfftn, r)
    _close(half, np.fft.rfftn(r))
    _close(_compiled(lambda h: jnp.fft.irfftn(h, shape), half), r)
    _close(_compiled(lambda x: jnp.fft.fft(x, axis=0), x), np.fft.fft(x, axis=0))


@pytest.mark.parametrize("n", [45, 60, 64, 97, 100])
@pytest.mark.parametrize("kind", ["fft", "rfft"])
def test_rows_do_not_mix(n, kind):
    x = _real(20, n) * 10.0 ** _rng.integers(-9, 9, (20, 1))
    x[3, 1] = np.nan
    found = _compiled(getattr(jnp.fft, kind), x + 0j if kind == "fft" else x)
    assert np.isnan(found[3]).all()
    for k in set(range(20)) - {3}:
        _close(found[k], getattr(np.fft, kind)(x[k]))


@pytest.mark.parametrize("n", [5, 16, 32, 96, 100, 256, 1000])
def test_single_precision(n):
    x, r = _complex(4, n).astype(np.complex64), _real(4, n).astype(np.float32)
    found = _compiled(jnp.fft.fft, x)
    assert found.dtype == np.complex64
    _close(found, np.fft.fft(x.astype(np.complex128)), 1.2e-7)
    half = _compiled(jnp.fft.rfft, r)
    assert half.dtype == np.complex64
    _close(half, np.fft.rfft(r.astype(np.float64)), 1.2e-7)
    back = _compiled(lambda h: jnp.fft.irfft(h, n), half)
    assert back.dtype == np.float32
    _close(back, r, 1.2e-7)


def test_in_a_scan_and_under_grad():
    k = 1j * np.fft.fftfreq(64, 1 / 64)

    def step(u, _):
        return u - 1e-3 * jnp.fft.ifft(k * jnp.fft.fft(u)).real * u, None

    def loss(u):
        return jnp.sum(fnx.lax.scan(step, u, None, length=20)[0] ** 2)

    u = np.sin(2 * np.pi * np.arange(64) / 64)
    report = fnx.jit(fnx.grad(loss)).lower(u).compile().report()
    assert "host call" not in report, report
    slope = np.asarray(fnx.jit(fnx.grad(loss))(u))
    d, eps = _real(64), 1e-6
    numeric = (float(loss(u + eps * d)) - float(loss(u - eps * d))) / (2 * eps)
    assert abs(slope @ d - numeric) < 1e-6 * abs(numeric)


def test_operand_is_not_overwritten():
    x = _complex(6, 8, 32)
    kept = x.copy()
    h = fnx.jit(lambda x: (jnp.fft.irfftn(x[..., :17], (6, 8, 32)), jnp.fft.fftn(x), x * 1))(x)
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(h[2], kept)


def test_empty():
    assert _run_shape(jnp.fft.fft, np.zeros((0, 4), complex)) == (0, 4)
    assert _run_shape(jnp.fft.rfft, np.zeros((0, 5))) == (0, 3)


def _run_shape(f, x):
    return fnx.jit(f)(x).shape


def test_many_threads_at_once():
    xs = [_complex(24, 100 + k) for k in range(8)]
    f = fnx.jit(jnp.fft.fft2)
    found = [None] * len(xs)

    def work(k):
        for _ in range(20):
            found[k] = np.asarray(f(xs[k]))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for x, y in zip(xs, found, strict=True):
        _close(y, np.fft.fft2(x))


def test_threads_share_the_work():
    x = _complex(300, 96)
    before = fnx.get_num_threads()
    results = []
    try:
        for n in (1, 4):
            fnx.set_num_threads(n)
            results.append(np.asarray(fnx.jit(jnp.fft.fft2)(x)))
    finally:
        fnx.set_num_threads(before)
    np.testing.assert_array_equal(*results)
    _close(results[0], np.fft.fft2(x))


def test_without_numpys_loops_the_host_is_called(monkeypatch):
    monkeypatch.setattr(pocketfft, "loops", lambda: None)
    x = _complex(17)
    program = fnx.jit(lambda x: jnp.fft.fft(x) + 1).lower(x).compile()
    assert "host call fft" in program.report()
    _close(np.asarray(program(x)), np.fft.fft(x) + 1)


def test_programs_of_other_sizes_share_their_code():
    texts = {fnx.jit(jnp.fft.fft).lower(_complex(n)).as_text("llvm") for n in (32, 100, 509, 1024)}
    assert len(texts) == 1


def test_names_of_plans():
    name = fft_plan.name("rfft", (3, 8), 1, "float64")
    assert fft_plan.plan(name) is fft_plan.plan(name)
    assert fft_executor.address()
    assert set(fft.ROUTINES) == {"fft"}


GUARD = 256  # bytes around each array


def _guarded(size):
    """Bytes with a known pattern around them, and the address of the first."""
    raw = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
    start = GUARD + -(raw.ctypes.data + GUARD) % 64
    return raw, start, raw.ctypes.data + start


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("single", [False, True])
def test_plans_write_their_own_memory_only(kind, single):
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(fft_executor.address())
    given = "float64" if kind == "rfft" else "complex128"
    made = "float64" if kind == "irfft" else "complex128"
    if single:
        given, made = ({"float64": "float32"}.get(d, "complex64") for d in (given, made))
    lengths = [*range(1, 41), 64, 96, 100, 375, 509, 1000]
    shapes = [(*lead, n) for n in lengths for lead in ((), (3,), (2, 9))]
    shapes += [(4, 6), (5, 3, 8), (33, 40), (8, 2), (30, 35), (13, 11, 9), (24, 107)]
    for shape in shapes:
        for axes in {1, len(shape)}:
            name = fft_plan.name(kind, shape, axes, given)
            half = (*shape[:-1], shape[-1] // 2 + 1)
            sizes = [
                int(np.prod(half if half_is == kind else shape)) * np.dtype(d).itemsize
                for half_is, d in (("irfft", given), ("rfft", made))
            ]
            arrays = [_guarded(size) for size in (*sizes, fft_plan.work_bytes(name))]
            raw, start, _ = arrays[0]
            raw[start : start + sizes[0]] = 0
            before = raw.copy()
            plan = fft_plan.plan(name)
            run(plan.address, *(address for _, _, address in arrays))
            np.testing.assert_array_equal(raw, before, name)
            ends = (*sizes, fft_plan.work_bytes(name))
            for (raw, start, _), size in zip(arrays, ends, strict=True):
                outside = np.r_[raw[:start], raw[start + size :]]
                assert (outside == 0xA5).all(), name


def test_what_is_written_with_vectors_is_not_vectorised_again(monkeypatch):
    """Its modules get passes of their own, not the many of a program."""
    kinds = []

    def compiled(text, kind="program"):
        kinds.append(kind)
        return compile_text(text, kind)

    thread_pool.address()  # compiled by itself
    compile_text = compiler.compile_text
    monkeypatch.setattr(compiler, "compile_text", compiled)
    monkeypatch.setattr(code_cache.disk_cache, "get", lambda key: None)
    assert fft_executor.shared.__wrapped__()
    assert set(kinds) == {"transform"}


def test_plans_are_remembered_up_to_a_limit(monkeypatch):
    """Those of programs live on, those of others are let go."""
    fft_plan.forget()
    monkeypatch.setattr(thresholds, "FFT_PLANS", 1 << 22)
    x = np.random.default_rng(0).normal(size=10_007)
    f = fnx.jit(jnp.fft.fft)
    first = f(x)
    (name,) = fft_plan._plans
    plan = weakref.ref(fft_plan._plans[name])
    for n in range(10_009, 10_029, 4):
        fft_plan.plan(fft_plan.name("fft", (n,), 1, "complex128"))
        assert sum(p.bytes for p in fft_plan._plans.values()) <= 1 << 22
    assert name not in fft_plan._plans
    np.testing.assert_array_equal(f(x), first)
    np.testing.assert_allclose(first, np.fft.fft(x), atol=1e-10)
    assert plan() is not None
    f.clear_cache()
    code_cache.forget()
    gc.collect()
    assert plan() is None


@pytest.mark.parametrize("forget", [fnx.clear_caches, fnx.release_memory])
def test_plans_can_be_let_go(forget):
    fft_plan.plan(fft_plan.name("fft", (10_007,), 1, "complex128"))
    assert fft_plan._plans
    forget()
    assert not fft_plan._plans
