"""fnx.benchmark: what is counted, and what it says of it."""

import gc

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.observe import benchmark as benchmark_
from fnx.observe.benchmark import Benchmark


def test_the_first_call_is_split_into_phases():
    found = fnx.benchmark(fnx.jit(lambda x: jnp.sin(x) * 1.25), jnp.ones(8), max_seconds=0.01)
    assert set(found.phases) >= {"trace", "simplify", "run"}
    assert {"compile", "recall"} & set(found.phases)
    assert min(found.phases.values()) > 0
    assert sum(found.phases.values()) == pytest.approx(found.first, rel=0.01)
    again = fnx.benchmark(fnx.jit(lambda x: x), jnp.ones(8), max_seconds=0.01)
    assert again.name == "<lambda>"


def test_a_function_that_is_compiled_has_no_phases_of_compiling():
    f = fnx.jit(lambda x: x + 1.0)
    f(1.0)
    found = fnx.benchmark(f, 1.0, max_seconds=0.01)
    assert not {"trace", "compile", "recall", "build"} & set(found.phases)


def test_derivatives_have_a_phase_of_transformations():
    f = fnx.grad(fnx.jit(lambda x: jnp.sum(x**3)))
    assert fnx.benchmark(f, jnp.ones(3), max_seconds=0.01).phases["transform"] > 0


def test_spread_is_that_of_the_samples():
    found = Benchmark("f", 1.0, {"trace": 0.5}, (3.0, 1.0, 2.0, 5.0, 4.0), 1, 1e9, 2e9)
    assert (found.best, found.median, found.quartiles) == (1.0, 3.0, (2.0, 4.0))
    text = str(found)
    for part in ("3 s", "between 2 s and 4 s", "trace 500 ms", "0.333 GB/s", "0.667 GFLOP/s"):
        assert part in text
    assert "of 4 calls" in str(Benchmark("f", 1.0, {}, (1.0,), 4))


def test_samples_are_as_many_as_fit_and_never_too_few(monkeypatch):
    called = []
    found = fnx.benchmark(lambda: called.append(1), max_seconds=1e-9)
    assert len(found.samples) == benchmark_.FEWEST
    assert found.phases == {}
    monkeypatch.setattr(benchmark_, "MOST", 5)
    assert len(fnx.benchmark(lambda: None, max_seconds=0.5).samples) == 5


def test_keywords_trees_and_numpy_arrays_are_handed_on():
    def f(tree, *, scale):
        return {k: v * scale for k, v in tree.items()}

    found = fnx.benchmark(fnx.jit(f), {"a": np.ones(3)}, scale=2.0, max_seconds=0.01)
    assert found.bytes == 3 * 8 * 2 + 8
    assert found.flops == 3


def test_donated_arguments_are_copied():
    x = jnp.ones(5)
    f = fnx.jit(lambda x: x + 1.0, donate_argnums=0)
    found = fnx.benchmark(f, x, max_seconds=0.01)
    assert found.calls == 1
    assert not x.is_deleted()


def test_what_can_be_called_once_is_refused():
    f = fnx.jit(lambda x: x + 1.0, donate_argnums=0)
    with pytest.raises(ValueError, match="deletes its arguments"):
        fnx.benchmark(lambda x: f(x), jnp.ones(5), max_seconds=0.01)  # noqa: PLW0108
    with pytest.raises(TypeError, match="benchmark needs a function"):
        fnx.benchmark(3.0)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="expected a positive number"):
            fnx.benchmark(f, max_seconds=wrong)


def test_errors_leave_nothing_behind():
    def broken():
        raise KeyError("here")

    with pytest.raises(KeyError):
        fnx.benchmark(broken)
    assert gc.isenabled()
    with fnx.profile() as p:
        fnx.jit(lambda x: x)(1.0)
    assert len(p.programs) == 1
