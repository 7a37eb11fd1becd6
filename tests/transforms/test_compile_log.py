"""Logs of what is traced and compiled, and of why."""

import pytest

import fnx
import fnx.numpy as jnp


@pytest.fixture
def told(caplog):
    """What was logged within a context since the last time that it was asked for."""
    caplog.set_level("WARNING", logger="fnx")

    def since():
        found = [r.getMessage() for r in caplog.records if r.name == "fnx"]
        caplog.clear()
        return found

    return since


def twice(x, n=2):
    return n * x


def test_what_is_traced_and_compiled(told):
    f = fnx.jit(twice)
    f(1.0)
    assert told() == []
    with fnx.log_compiles():
        f(1.0)
        assert told() == []
        f(jnp.ones(3))
        traced, compiled = told()
    assert traced.startswith("Finished tracing twice of (f64[3]) in ")
    assert compiled.startswith("Finished compiling twice in ")
    assert fnx.config.jax_log_compiles is False


def test_why_a_function_is_traced_again(told):
    f = fnx.jit(twice, static_argnames="n")
    with fnx.explain_cache_misses():
        f(1.0)
        (first,) = told()
        f(jnp.ones(2))
        (types,) = told()
        f(jnp.ones(2), n=3)
        (static,) = told()
        f({"a": 1.0}["a"])
        assert told() == []
    assert f"TRACING CACHE MISS at {__file__}" in first
    assert "for twice defined at" in first
    assert "was not traced before" in first
    assert "leaf 0 of the arguments, now f64[2] and before f64[]*" in types
    assert "static arguments, now" in static
    with fnx.explain_cache_misses():
        g = fnx.jit(lambda t: t["x"] if isinstance(t, dict) else t)
        g(1.0)
        g({"x": 1.0})
    assert "the structure of arguments" in told()[-1]


def test_settings_of_jax_turn_them_on(told):
    fnx.config.update("jax_explain_cache_misses", True)
    try:
        fnx.jit(lambda x: 2.0 * x)(1.0)
    finally:
        fnx.config.update("jax_explain_cache_misses", False)
    assert len(told()) == 1
