"""Programs for all sizes: dimension variables, what they can be, and what depends on them otherwise."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import export, lax

Struct = fnx.ShapeDtypeStruct


def layer(w, x):
    h = fnx.nn.softmax(fnx.nn.relu(x @ w) + jnp.arange(x.shape[0])[:, None])
    return h.mean(), h.reshape(-1), jnp.concatenate([h, h]), x.std(0)


def exported_layer():
    b, _ = export.symbolic_shape("b, n", constraints=["b >= 4"])
    return export.export(fnx.jit(layer))(Struct((3, 5), float), Struct((b, 3), float))


def test_shapes_of_results_are_polynomials():
    e = exported_layer()
    shown = ["f64[]", "f64[5*b]", "f64[2*b,5]", "f64[3]"]
    for found in (e, export.deserialize(e.serialize())):
        assert [a.str_short() for a in found.out_avals] == shown
        assert found.in_avals[1].str_short() == "f64[b,3]"


@pytest.mark.parametrize("n", [4, 7, 13, 50])
def test_values_and_derivatives_at_any_size(n):
    w, x = np.linspace(-1, 1, 15).reshape(3, 5), np.linspace(-2, 3, 3 * n).reshape(n, 3)
    e = exported_layer()
    read = export.deserialize(e.serialize(vjp_order=1))
    for found in (e.call(w, x), read.call(w, x), fnx.jit(read.call)(w, x)):
        for a, b in zip(found, layer(w, x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
    loss = lambda f: fnx.grad(lambda w: f(w, x)[1].var() + f(w, x)[0])
    np.testing.assert_allclose(loss(read.call)(w), loss(layer)(w), rtol=1e-9)


def test_loops_and_sizes_of_two_variables():
    b = export.symbolic_shape("b")
    sums = export.export(fnx.jit(lambda x: lax.scan(lambda c, x: (c + x, c * x), 0.0, x)))(
        Struct(b, float)
    )
    last, ys = export.deserialize(sums.serialize()).call(np.arange(6.0))
    assert (float(last), ys.tolist()) == (15.0, [0, 0, 2, 9, 24, 50])
    scope = export.SymbolicScope()
    left, right = (export.symbolic_shape(s, scope=scope) for s in ("n, m", "m, 2*n"))
    product = export.export(fnx.jit(jnp.matmul))(Struct(left, float), Struct(right, float))
    assert product.out_avals[0].str_short() == "f64[n,2*n]"
    assert product.call(np.ones((3, 2)), np.ones((2, 6))).shape == (3, 6)
    with pytest.raises(ValueError, match=r"axis of size 5; expected 2\*n = 6"):
        product.call(np.ones((3, 2)), np.ones((2, 5)))


def test_sizes_that_do_not_fit():
    w = np.ones((3, 5))
    with pytest.raises(ValueError, match="b >= 4"):
        exported_layer().call(w, np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"expected f64\[b,3\]"):
        exported_layer().call(w, np.ones((4, 2)))
    even = export.export(fnx.jit(jnp.sum))(Struct(export.symbolic_shape("2*b"), float))
    assert float(even.call(np.ones(6))) == 6.0
    for n in (0, 5):
        with pytest.raises(ValueError, match=r"expected 2\*b for an integer b"):
            even.call(np.ones(n))


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x[: x.shape[0] // 2], "5 for {'b': 11}; 6 for {'b': 13}"),
        (lambda x: sum(x[i] for i in range(x.shape[0])), "operations or parameters"),
        (lambda x: x + np.arange(x.shape[0]) ** 2 % 7, "a constant of shape"),
        (lambda x: x * 1.5 ** x.shape[0], "no polynomial"),
    ],
)
def test_programs_that_depend_on_sizes_otherwise(f, message):
    with pytest.raises(ValueError, match=message.replace("{", r"\{")):
        export.export(fnx.jit(f))(Struct(export.symbolic_shape("b"), float))


def test_variables_must_be_found_in_shapes():
    with pytest.raises(ValueError, match="stands alone"):
        export.export(fnx.jit(jnp.sum))(Struct(export.symbolic_shape("a*b"), float))
    a, b = export.symbolic_shape("a"), export.symbolic_shape("b")
    with pytest.raises(ValueError, match="scope"):
        export.export(fnx.jit(lambda x, y: x))(Struct(a, float), Struct(b, float))


# --- arithmetic of sizes, and their texts ------------------------------------------------------


def test_arithmetic_of_sizes():
    a, b = export.symbolic_shape("a, b")
    assert [str(x) for x in (a + b, 2 * a - b, a * b + 1, 3 - a, a * a, -a)] == [
        "a + b", "2*a - b", "a*b + 1", "-a + 3", "a^2", "-a",
    ]  # fmt: skip
    assert (a + b - a == b, hash(a + b - a) == hash(b), a == 3, a - a) == (True, True, False, 0)
    assert (a >= 1, a + b > 1, a < a + 1, 2 * a <= 1) == (True, True, True, False)
    with pytest.raises(ValueError, match="depends"):
        bool(a > b)
    with pytest.raises(TypeError, match="number is needed"):
        range(a)
    with pytest.raises(ValueError, match="scopes"):
        a + export.symbolic_shape("c")[0]


def test_texts_of_shapes():
    assert str(export.symbolic_shape("b, 2*b + 1, 3")) == "(b, 2*b + 1, 3)"
    assert str(export.symbolic_shape("(b, _, ...)", like=(5, 6, 7, 8))) == "(b, 6, 7, 8)"
    assert export.symbolic_shape("") == ()
    assert str(export.symbolic_shape("b^2")) == "(b^2,)"
    for text in ("b/2", "f(b)", "b, !", "1.5", "_", "...", "b^9"):
        with pytest.raises(ValueError, match=r"expected|needs"):
            export.symbolic_shape(text)
    with pytest.raises(ValueError, match="constraint"):
        export.symbolic_shape("b", constraints=["b is large"])


def test_types_of_arguments_of_texts():
    x, k = np.ones((2, 3)), {"n": np.ones((2, 4), "float32")}
    first, second = export.symbolic_args_specs((x, k), ("b, _", "b, ..."))
    assert (str(first.shape), str(second["n"].shape)) == ("(b, 3)", "(b, 4)")
    assert first.shape[0].scope is second["n"].shape[0].scope
    assert second["n"].dtype == np.float32
