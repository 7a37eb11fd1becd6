"""Checkpoint: what is computed again, what is kept, under all transformations."""

import itertools
import re

import numpy as np
import pytest
from loop_checks import total

import fnx
from fnx import ad_checkpoint
from fnx import control_flow as lax
from fnx import numpy as jnp
from fnx.core.jaxpr import check_jaxpr
from fnx.experimental import io_callback
from fnx.interpreters.passes.simplify import simplify
from fnx.ops.elementwise.arithmetic import cos, exp, sin, tanh
from fnx.ops.linalg.contraction import DotGeneral
from fnx.transforms.jit import jit

dot = DotGeneral((((1,), (0,)), ((), ())))

pytestmark = pytest.mark.usefixtures("reference")


X = 0.3


def deep(w, x):
    for _ in range(3):
        x = tanh(dot(w, x))
    return total(x)


W, H = np.arange(16.0).reshape(4, 4) / 20, np.ones((4, 4))


def dots(f, *args):
    jaxpr = simplify(fnx.make_jaxpr(f)(*args).jaxpr, final=True)
    check_jaxpr(jaxpr)

    def count(j):
        inner = [sub for e in j.eqns for sub in [getattr(e.prim, "jaxpr", None)] if sub]
        return sum(e.prim.name == "dot_general" for e in j.eqns) + sum(map(count, inner))

    return count(jaxpr)


def test_checkpoint_computes_again():
    def gradient(f):
        return fnx.value_and_grad(f, (0, 1))

    plain, again = gradient(deep), gradient(ad_checkpoint.checkpoint(deep))
    for a, b, c in zip(plain(W, H)[1], again(W, H)[1], jit(again)(W, H)[1]):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-14)
        np.testing.assert_allclose(np.asarray(a), np.asarray(c), rtol=1e-14)
    assert dots(plain, W, H) == 9, "three forward, two for each of them backward"
    assert dots(again, W, H) == 12
    policy = ad_checkpoint.checkpoint_policies.dots_saveable
    kept = gradient(ad_checkpoint.checkpoint(deep, policy=policy))
    assert dots(kept, W, H) == 9
    np.testing.assert_allclose(
        np.asarray(kept(W, H)[1][0]), np.asarray(plain(W, H)[1][0]), rtol=1e-14
    )


def test_checkpoint_by_names():
    def f(x):
        y = ad_checkpoint.checkpoint_name(sin(x), "y")
        return sin(y) * exp(y)

    policies = ad_checkpoint.checkpoint_policies

    def sines(policy):
        g = fnx.grad(ad_checkpoint.checkpoint(f, policy=policy))
        np.testing.assert_allclose(float(g(X)), float(fnx.grad(f)(X)))
        text = str(simplify(fnx.make_jaxpr(fnx.value_and_grad(
            ad_checkpoint.checkpoint(f, policy=policy)))(X).jaxpr, final=True))  # fmt: skip
        return text.count("= sin ")

    everything = sines(policies.everything_saveable)
    assert sines(policies.save_only_these_names("y")) < sines(policies.nothing_saveable)
    assert sines(policies.save_only_these_names("z")) == sines(policies.nothing_saveable)
    assert everything <= sines(policies.save_only_these_names("y"))
    assert sines(policies.save_any_names_but_these("z")) == sines(
        policies.save_only_these_names("y")
    )


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "jit"])
def test_checkpoint_under_transformations(wrap):
    f = lambda x, k: sin(x * k) * cos(x)
    g = (
        wrap(ad_checkpoint.checkpoint(f, static_argnums=1))
        if wrap is not jit
        else jit(ad_checkpoint.checkpoint(f))
    )
    h = lambda x: g(x, 2.0)
    p = lambda x: f(x, 2.0)
    xs = np.linspace(0.1, 1, 3)
    for t in (
        lambda q: q,
        fnx.grad,
        lambda q: fnx.grad(fnx.grad(q)),
        fnx.jacfwd,
        lambda q: fnx.grad(fnx.jacfwd(q)),
    ):
        np.testing.assert_allclose(float(t(h)(X)), float(t(p)(X)), rtol=1e-13)
        np.testing.assert_allclose(
            np.asarray(fnx.vmap(t(h))(xs)), np.asarray(fnx.vmap(t(p))(xs)), rtol=1e-13
        )
    loop = lambda q: lambda x: lax.scan(lambda c, _: (q(c), None), x, None, length=3)[0]
    np.testing.assert_allclose(float(fnx.grad(loop(h))(X)), float(fnx.grad(loop(p))(X)), rtol=1e-13)


def test_print_saved_residuals(capsys):
    k = jnp.arange(3.0)

    def f(p, x, *rest, scale):
        wave = ad_checkpoint.checkpoint_name(jnp.sin(p["a"] * x), "wave")
        return jnp.sum(jnp.exp(wave) * p["b"][0] * k) * scale

    def printed(f):
        ad_checkpoint.print_saved_residuals(f, {"a": X, "b": [k]}, 1.0, scale=2.0)
        said = capsys.readouterr().out.replace("]*", "]")
        return re.sub(r" from [^ ]*test_checkpoint.py:\d+", "", said).splitlines()

    given = [
        "f64[3] from a constant",
        "f64[] from the argument p['a']",
        "f64[3] from the argument p['b'][0]",
        "f64[] from the argument x",
    ]
    found = printed(f)
    assert found[:4] == given
    assert {"f64[] output of cos (f)", "f64[] output of exp (f)"} < {*found}
    policy = fnx.checkpoint_policies.save_only_these_names("wave")
    found = printed(fnx.checkpoint(f, policy=policy))
    assert found == [*given, "f64[] from the argument scale", "f64[] named 'wave' (f)"]


@pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
def test_what_a_function_with_side_effects_gave_is_kept(jit):
    """Another reading of a clock would make a derivative of another function."""
    readings = itertools.count(1)

    def read(_):
        return np.float64(next(readings))

    @fnx.checkpoint
    def f(x):
        return jnp.sin(x) * io_callback(read, fnx.ShapeDtypeStruct((), float), 0.0)

    value, slope = jit(fnx.value_and_grad(f))(1.0)
    assert next(readings) == 2
    assert float(value) == pytest.approx(np.sin(1.0))
    assert float(slope) == pytest.approx(np.cos(1.0))
