"""fnx.ad_checkpoint.report: what a backward pass keeps, where, and what checkpointing would save."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.ad_checkpoint import report
from fnx.observe import residuals

HERE = "test_residuals.py"


def square_of_sine(x):
    return jnp.sum(jnp.sin(x) ** 2)


def layer(w, x):
    return jnp.tanh(w @ x)


def net(ws, x):
    for w in ws:
        x = layer(w, x)
    return jnp.sum(x)


def test_lines_and_bytes():
    found = report(square_of_sine)(np.ones(1000))
    assert found.name == "square_of_sine"
    assert found.bytes == 2 * 8000
    assert {r.operation for r in found.residuals} <= {"sin", "cos", "mul"}
    for r in found.residuals:
        assert r.source.code is square_of_sine.__code__
        assert r.line.startswith(f"{HERE}:{r.source.line} (square_of_sine): return jnp.sum")
    text = str(found)
    assert "the backward pass of square_of_sine keeps 16 kB" in text
    assert "with checkpoint(f) it keeps 0 B, 16 kB less" in text
    assert 'class="fnx"><pre>' in found._repr_html_()  # in columns, by a style of its own


def test_policies_keep_products_of_matrices():
    ws, x = [np.ones((5, 5))] * 3, np.ones((5, 7))
    found = report(net)(ws, x)
    assert found.arguments == 3 * 200 + 280
    savings = {s.how: s for s in found.savings}
    assert savings["checkpoint(f)"].bytes == 0
    dots = savings["checkpoint(f, policy=checkpoint_policies.dots_saveable)"]
    assert 0 < dots.bytes < found.bytes
    assert savings["checkpoint(f)"].flops > dots.flops > 0
    assert report(fnx.checkpoint(net))(ws, x).bytes == 0


def test_jitted_functions_keep_what_they_keep_without():
    ws, x = [np.ones((5, 5))] * 3, np.ones((5, 7))
    found = report(fnx.jit(net))(ws, x)
    assert found.bytes == report(net)(ws, x).bytes
    assert {r.source.code for r in found.residuals} == {layer.__code__}


def test_loops_count_each_iteration():
    def loop(x):
        def body(c, _):
            return jnp.sin(c) * c, None

        return lax.scan(body, x, None, length=100)[0].sum()

    found = report(loop)(np.ones(10))
    assert [r.times for r in found.residuals] == [100] * len(found.residuals)
    assert found.bytes == sum(r.bytes for r in found.residuals)
    assert found.bytes % (100 * 80) == 0
    assert found.bytes >= 100 * 80
    assert "f64[100,10]" in str(found)


def test_loops_in_loops_multiply():
    def inner(c, row):
        return c * row, jnp.exp(c)

    @fnx.jit
    def outer(c, _):
        return lax.scan(inner, c, np.linspace(0.5, 1.5, 4))

    jaxpr = fnx.make_jaxpr(lambda: lax.scan(outer, 1.0, None, length=6))().jaxpr
    carry, rows = jaxpr.outs
    source, operation, times = residuals._origin(jaxpr, rows)
    assert (source.code, operation, times) == (inner.__code__, "exp", 24)
    assert residuals._origin(jaxpr, carry)[1:] == ("scan", 1)


def test_bodies_of_loops_can_be_checkpointed():
    def loop(ws, x):
        def body(c, _):
            for w in ws:
                c = jnp.tanh(w @ c)
            return c, None

        return jnp.sum(lax.scan(body, x, None, length=10)[0])

    n = 64
    found = report(loop)([np.ones((n, n))] * 4, np.ones((n, n)))
    savings = {s.how: s for s in found.savings}
    inside = savings["checkpoint of the bodies of loops"]
    assert inside.bytes == 10 * n * n * 8 < found.bytes
    assert savings["checkpoint(f)"].flops >= inside.flops >= 10 * 4 * 2 * n**3


def test_constants_are_not_differentiated():
    table = jnp.linspace(0.0, 1.0, 50)
    found = report(lambda x: jnp.sum(jnp.sin(table) * x))(2.0)
    alone = report(lambda t, x: jnp.sum(jnp.sin(t) * x))(table, 2.0)
    assert found.bytes < alone.bytes


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: x, (1,)),
        (lambda x: x + 1.0, (np.ones(3),)),
        (lambda: 1.0, ()),
        (lambda x: {}, (np.ones(3),)),
        (fnx.random.uniform, (fnx.random.key(0),)),
        (jnp.sin, (np.ones((0, 3)),)),
        (lambda x: x > 0, (np.ones(2),)),
    ],
)
def test_nothing_is_kept(f, args):
    found = report(f)(*args)
    assert found.bytes == 0
    assert found.savings == ()
    assert "keeps 0 B" in str(found)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: lax.cond(x.sum() > 0, lambda x: jnp.sin(x) * x, lambda x: x, x), (np.ones(3),)),
        (lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.sin(c), x), (1.0,)),
        (fnx.vmap(jnp.linalg.inv), (np.stack([np.eye(2)] * 3),)),
        (fnx.grad(square_of_sine), (np.ones(3),)),
        (fnx.hessian(square_of_sine), (np.ones(3),)),
        (lambda x: jnp.sin(x * 1j), (np.ones(2, np.complex64),)),
        (lambda tree, scale=1.0: tree["a"] ** 3 * scale, ({"a": np.ones(2), "b": 1},)),
    ],
)
def test_whatever_the_function_the_report_adds_up(f, args):
    found = report(f)(*args)
    assert found.bytes == sum(r.bytes for r in found.residuals) > 0
    assert [r.bytes for r in found.residuals] == sorted(r.bytes for r in found.residuals)[::-1]
    assert all(s.bytes < found.bytes for s in found.savings)
    assert str(found)


def test_under_jit_and_with_wrong_arguments():
    sizes = []

    def outer(x):
        sizes.append(report(square_of_sine)(x).bytes)
        return x

    fnx.jit(outer)(np.ones(4))
    assert sizes == [64]
    with pytest.raises(TypeError, match="needs a function"):
        report(3.0)
    with pytest.raises(TypeError):
        report(square_of_sine)("text")
