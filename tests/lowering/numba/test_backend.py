"""The Numba backend: programs of all kinds give what the reference backend gives."""

import linecache
import signal

import numpy as np
import pytest
from numba_programs import PROGRAMS, V, check

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.core.errors import InvalidValue


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    check(name)


def test_numba_compiles_what_calls_nobody():
    lowered = fnx.jit(lambda x: jnp.sum(x * x), backend="numba").lower(V)
    assert lowered.program.compiled().printed.compiles
    assert "import numba" in lowered.as_text("numba")
    with pytest.raises(InvalidValue, match="no dialect 'llvm'"):
        lowered.as_text("llvm")
    assert "kernel" in lowered.compile().report()


def test_the_setting_chooses_it():
    with config.backend("numba"):
        f = fnx.jit(lambda x: x + 1)
        np.testing.assert_array_equal(f(V), V + 1)
        assert type(f.lower(V).program.compiled()).__module__ == "fnx.lowering.numba.backend"


def test_the_kernel_ir_is_checked_where_that_is_asked_for():
    with config.check():
        np.testing.assert_array_equal(fnx.jit(lambda x: x + 1, backend="numba")(V), V + 1)


def test_references_and_nested_functions_keep_the_backend():
    ref = fnx.new_ref(jnp.zeros(3))

    @lambda f: fnx.jit(f, backend="numba")
    def add(x):
        ref[...] += x

    add(jnp.ones(3))
    np.testing.assert_array_equal(ref[...], np.ones(3))


@pytest.mark.parametrize("name", ["gpu", "tpu", "CPU", ""])
def test_a_backend_that_there_is_not(name):
    with pytest.raises(InvalidValue, match="there are cpu, cuda, numba, reference"):
        fnx.jit(lambda x: x, backend=name)
    with pytest.raises(InvalidValue, match="there are cpu, cuda, numba, reference"):
        fnx.config.update("backend", name)
    with (
        config.backend(name),
        pytest.raises(InvalidValue, match="there are cpu, cuda, numba, reference"),
    ):
        fnx.jit(lambda x: x + 1)(V)


def test_loops_that_call_python_are_compiled():
    seen = []

    def note(x):
        seen.append(float(x))
        return x + 1

    def f(x):
        call = lambda c: fnx.pure_callback(note, fnx.ShapeDtypeStruct((), float), c)
        return lax.fori_loop(0, 3, lambda i, c: call(c) * 2, x)

    g = fnx.jit(f, backend="numba")
    assert float(g(1.0)) == 22.0
    assert seen[-3:] == [1.0, 4.0, 10.0]
    assert "if host(calls[2]" in g.lower(1.0).as_text("numba")


@pytest.mark.parametrize(
    "name", ["while", "max", "np", "range", "int64_from_float", "2d", "é", "_"]
)
def test_names_that_mean_something_else(name):
    def f(x):
        return jnp.maximum(x, 2).astype(int) + lax.fori_loop(0, 3, lambda i, c: c + i, 0)

    f.__name__ = name
    np.testing.assert_array_equal(fnx.jit(f, backend="numba")(np.arange(4.0)), [5, 5, 5, 6])


def test_loops_with_more_work_than_a_word_counts():
    def nested(depth):
        if not depth:
            return lambda x: x * 0.5
        return lambda x: lax.fori_loop(0, 10**6, lambda i, c: nested(depth - 1)(c) + i, x)

    f = lambda x, n: lax.fori_loop(0, n, lambda i, c: nested(4)(c), x)
    assert float(fnx.jit(f, backend="numba")(1.5, 0)) == 1.5


def test_an_exception_of_a_callback_ends_the_program():
    def bad(x):
        raise KeyError("of a callback")

    call = lambda x: fnx.pure_callback(bad, fnx.ShapeDtypeStruct((), float), x)
    with pytest.raises(KeyError, match="of a callback"):
        fnx.jit(call, backend="numba")(1.0)


def test_one_source_for_two_dtypes_is_two_programs():
    f = fnx.jit(lambda x: x * x, backend="numba")
    for dtype in (np.float32, np.float64, np.int64, np.float32):
        found = f(np.arange(4, dtype=dtype))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.arange(4, dtype=dtype) ** 2)


def test_donated_arguments():
    x = jnp.arange(50.0) * 2
    y = fnx.jit(lambda x: x + 1, backend="numba", donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, np.arange(50.0) * 2 + 1)


def test_functions_of_scipy():
    from fnx.scipy import special

    a, x = np.linspace(0.5, 3, 6), np.linspace(0.1, 4, 6)
    f = lambda a, x: special.gammainc(a, x) + special.digamma(a)
    np.testing.assert_allclose(
        fnx.jit(f, backend="numba")(a, x), fnx.jit(f, backend="reference")(a, x), rtol=1e-13
    )


def test_code_is_found_on_disk(no_code, monkeypatch):
    from fnx.lowering.numba import load

    f = lambda x: jnp.cumsum(x) * 3.25
    first = fnx.jit(f, backend="numba")
    np.testing.assert_array_equal(first(V), np.cumsum(V) * 3.25)
    first.clear_cache()
    load.forget()  # as in another process
    program = fnx.jit(f, backend="numba").lower(V).program.compiled()
    assert program.executable.code.origin == "disk"
    np.testing.assert_array_equal(program([fnx.numpy.asarray(V)])[0], np.cumsum(V) * 3.25)


def test_code_and_texts_are_remembered_up_to_a_limit(no_code, monkeypatch):
    from fnx.lowering.cpu.processor import thresholds
    from fnx.lowering.numba import compiler, load

    monkeypatch.setattr(thresholds, "LOADED_PROGRAMS", 2)
    found = [fnx.jit(lambda x, c=c: x * c, backend="numba") for c in (1.5, 2.5, 3.5, 4.5)]
    for f, c in zip(found, (1.5, 2.5, 3.5, 4.5), strict=True):
        np.testing.assert_array_equal(f(V), V * c)
    assert len(load._loaded) == 2
    assert sum(name in linecache.cache for name in compiler._files) <= 2
    np.testing.assert_array_equal(found[0](V), V * 1.5)  # its program holds its code
    fnx.clear_caches()
    assert not load._loaded


def test_the_source_runs_as_plain_python(monkeypatch):
    from fnx.lowering.numba import load

    monkeypatch.setattr(load, "jit_is_disabled", lambda: True)
    for name in ("scan", "sort", "solve, on the host"):
        check(name)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers are POSIX's")
def test_a_signal_ends_a_long_loop():
    def stop(*_):
        raise KeyboardInterrupt

    f = fnx.jit(
        lambda x: lax.while_loop(lambda c: c >= 0, lambda c: (c + 1) % 1000, x), backend="numba"
    )
    f(-1)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            f(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
