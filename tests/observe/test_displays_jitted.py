"""Jitted functions in notebooks: specialisations, times, and what was made of them."""

import pytest
from markup import page

import fnx
import fnx.numpy as jnp
from fnx.core import policy
from fnx.observe.displays import jaxprs

TEXTS = ("Kernel IR", "Numba source", "LLVM IR", "assembly")


def _squares(x, w=None):
    return jnp.sum(jnp.sin(x) ** 2)


def test_a_function_that_was_never_called():
    shown = page(fnx.jit(_squares))
    assert "jit of _squares" in shown.text
    assert "nothing is compiled yet" in shown.text
    assert "test_displays_jitted.py" in shown.text


def test_a_function_of_the_surface_is_where_it_is_defined():
    assert "elementary.py" in page(fnx.jit(jnp.logaddexp)).text
    assert "uniform.py" in page(fnx.jit(fnx.random.uniform)).text


@pytest.mark.own_code
def test_specialisations_times_and_texts():
    f = fnx.jit(_squares)
    f(jnp.ones(3))
    f(jnp.ones((2, 2), jnp.float32), w={"a": jnp.ones(2), "b": [1.0]})
    shown = page(f)
    assert "2 specialisations, 2 with code" in shown.text
    for part in (
        "1: (f64[3])",
        "2: (f32[2,2], f64[2], f64[]*)",
        "argument 0",
        "w['a']",
        "w['b'][0]",
    ):
        assert part in shown.text, part
    for part in ("trace", "compile and load", "all stages", "machine code", "backend cpu"):
        assert part in shown.text, part
    for title in ("jaxpr (3 equations)", *TEXTS):
        assert shown.text.count(title) >= 2, title
    assert "define" in shown.text
    assert "program _squares" in shown.text
    assert shown.tags.count(("details", {"open": "open"})) == 1


def test_a_display_compiles_nothing():
    f = fnx.jit(lambda x: jnp.sum(x * x))
    f.trace(jnp.ones(5))
    before = fnx.compile_stats()
    shown = page(f)
    assert "not compiled yet" in shown.text
    assert "assembly" not in shown.text
    assert fnx.compile_stats() == before
    (program,) = f._programs.values()
    assert not [k for k in program.jaxpr._made if isinstance(k, tuple) and k[0] == "compiled"]


@pytest.mark.own_code
def test_code_that_was_there_is_a_cache_hit():
    make = lambda: fnx.jit(lambda x: x * 3.25 - 1.5 / x)
    make()(jnp.ones(6))
    again = make()
    again(jnp.ones(6))
    assert "1 from the cache" in page(again).text
    assert "found in the cache" in page(again).text


def test_static_donated_and_named_backends():
    f = fnx.jit(lambda x, n: x * n, static_argnums=1, donate_argnums=0)
    f(jnp.ones(3), 4)
    shown = page(f)
    assert "argument 0 f64[3] argument 1 static: 4" in shown.text
    assert "donated 1 of 1 input" in shown.text
    by_name = fnx.jit(lambda mode, x, *, k: x * k if mode else x, static_argnames="mode")
    by_name(True, jnp.ones(2), k=2.0)
    assert "argument 1 f64[2] k f64[]* argument 0 static: True" in page(by_name).text
    g = fnx.jit(jnp.cos, backend="reference")
    g(jnp.ones(3))
    shown = page(g)
    assert "backend reference" in shown.text
    assert "LLVM" not in shown.text


def test_functions_of_mutable_references():
    total = fnx.new_ref(jnp.zeros(2))
    f = fnx.jit(lambda x: total.__setitem__(..., total[...] + x))
    f(jnp.ones(2))
    assert "1 specialisation," in page(f).text


def test_many_specialisations_and_large_programs_are_cut():
    f = fnx.jit(lambda x: x + 1.0, backend="reference")
    most = policy.DISPLAYED_SPECIALISATIONS
    for n in range(1, most + 3):
        f(jnp.ones(n))
    shown = page(f)
    assert f"the last {most} are shown" in shown.text
    assert f"{most + 2}: (f64[{most + 2}])" in shown.text
    assert "1: (f64[1])" not in shown.text

    def long(x):
        for _ in range(policy.DISPLAYED_LOWERINGS + 1):
            x = jnp.sin(x)
        return x

    g = fnx.jit(long)
    g(1.0)
    shown = page(g)
    assert "are not made for this" in shown.text
    assert "more equations" in shown.text
    assert "assembly" not in shown.text


def test_hostile_names_are_escaped():
    f = lambda x: x
    f.__name__ = "<script>alert('&')</script>"
    f = fnx.jit(f)
    f({"<b>&amp;": jnp.ones(2)})
    shown = page(f)
    assert "<script>alert('&')</script>" in shown.text
    assert "<b>&amp;" in shown.text


@pytest.mark.parametrize("f", [jnp.sin, fnx.grad(lambda x: jnp.sum(jnp.tanh(x) ** 2))])
def test_the_coloured_text_is_the_printed_one(f):
    jaxpr = fnx.make_jaxpr(fnx.vmap(f))(jnp.ones((3, 2))[:, 0]).jaxpr
    lines = jaxprs.Printer().lines(jaxpr)
    assert "\n".join(line.plain() for line in lines) == str(jaxpr)


def test_nested_jaxprs_and_consts_print_as_the_printed_ones():
    offset = jnp.ones(3)

    def f(x):
        return fnx.lax.fori_loop(0, 4, lambda i, s: jnp.sin(s) + offset, x)

    jaxpr = fnx.make_jaxpr(f)(offset).jaxpr
    lines = jaxprs.Printer().lines(jaxpr)
    assert "\n".join(line.plain() for line in lines) == str(jaxpr)
    assert jaxprs.count(jaxpr) > len(jaxpr.eqns)


def test_static_objects_that_cannot_be_shown_are_named_by_their_class():
    class Unspeakable:
        def __repr__(self):
            raise ZeroDivisionError

    f = fnx.jit(lambda x, how: x, static_argnums=1)
    f(1.0, Unspeakable())
    assert "Unspeakable" in f._repr_html_()
