"""Exported functions: values and derivatives as of the functions themselves, in other processes too."""

import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from samples import all_samples

import fnx
import fnx.numpy as jnp
from fnx import export, lax, random
from fnx.export import encoding
from fnx.export.files import pack, unpack

Struct = fnx.ShapeDtypeStruct
Pair = namedtuple("Pair", "left right")
X, Y = np.linspace(-1, 1, 12).reshape(3, 4), np.arange(4.0)


def model(x, y):
    return {"a": jnp.sin(x) @ y, "b": [fnx.nn.relu(x).sum()]}


def exported(**options):
    return export.export(fnx.jit(model), **options)(Struct((3, 4), float), Struct((4,), float))


def again(e, order=0):
    return export.deserialize(e.serialize(vjp_order=order))


def test_types_and_structures():
    e = exported()
    for found in (e, again(e)):
        assert found.fun_name == "model"
        assert [a.str_short() for a in found.in_avals] == ["f64[3,4]", "f64[4]"]
        assert [a.str_short() for a in found.out_avals] == ["f64[3]", "f64[]"]
        assert found.in_tree == fnx.tree.structure(((X, Y), {}))
        assert found.out_tree == fnx.tree.structure({"a": 0, "b": [0]})
        assert (found.platforms, found.nr_devices) == (("cpu",), 1)
        assert found.module_kept_var_idx == (0, 1)
        assert repr(found) == "Exported(fun_name=model, ...)"


def test_calls_give_what_the_function_gives():
    expected = model(X, Y)
    for e in (exported(), again(exported())):
        for call in (e.call, fnx.jit(e.call)):
            found = call(X, Y)
            np.testing.assert_allclose(found["a"], expected["a"], rtol=1e-14)
            np.testing.assert_allclose(found["b"][0], expected["b"][0], rtol=1e-14)
        many = fnx.vmap(e.call, in_axes=(0, None))(np.stack([X, -X]), Y)
        np.testing.assert_allclose(many["a"][1], model(-X, Y)["a"])


def test_files_are_read_by_another_process(tmp_path):
    (tmp_path / "f").write_bytes(exported().serialize())
    code = (
        "import sys, fnx.export, numpy as np\n"
        "e = fnx.export.deserialize(open(sys.argv[1], 'rb').read())\n"
        "print(float(e.call(np.ones((3, 4)), np.ones(4))['b'][0]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "f")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == "12.0\n", run.stderr


def test_derivatives():
    loss = lambda f: lambda x, y: (f(x, y)["a"] ** 2).sum() + f(x, y)["b"][0]
    expected = fnx.grad(loss(model), (0, 1))(X, Y)
    for e in (exported(), again(exported(), 1), again(again(exported(), 2), 1)):
        for a, b in zip(fnx.grad(loss(e.call), (0, 1))(X, Y), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
    second = fnx.grad(lambda x: fnx.grad(loss(again(exported(), 2).call))(x, Y).sum())(X)
    np.testing.assert_allclose(
        second, fnx.grad(lambda x: fnx.grad(loss(model))(x, Y).sum())(X), rtol=1e-12
    )
    with pytest.raises(ValueError, match="vjp_order=1"):
        fnx.grad(loss(again(exported()).call))(X, Y)
    assert [a.str_short() for a in again(exported(), 1).vjp().in_avals[2:]] == ["f64[3]", "f64[]"]


def test_rules_of_users_are_in_the_derivative():
    @fnx.custom_jvp
    def f(x):
        return x

    f.defjvps(lambda t, y, x: 7.0 * t)
    e = again(export.export(fnx.jit(f))(1.0), 1)
    assert (float(e.call(2.0)), float(fnx.grad(e.call)(2.0))) == (2.0, 7.0)


def test_keys_integers_and_loops():
    def walk(key, n):
        return lax.scan(lambda c, _: (c * 2, random.normal(key)), n, length=3), random.split(key)

    key = random.key(0)
    e = again(export.export(fnx.jit(walk))(key, 3), 1)
    (last, drawn), keys = e.call(key, 3)
    assert int(last) == 24
    np.testing.assert_array_equal(drawn, walk(key, 3)[0][1])
    assert bool((keys == random.split(key)).all())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X,), "structure"),
        ((X.T, Y), r"leaf 0 .* f64\[4,3\]; expected f64\[3,4\]"),
        ((X, Y.astype("float32")), r"leaf 1 .* f32\[4\]; expected f64\[4\]"),
    ],
)
def test_calls_with_other_types(args, message):
    with pytest.raises(ValueError, match=message):
        exported().call(*args)


# --- what is refused ---------------------------------------------------------------------------


def test_there_is_no_stablehlo():
    for ask in (lambda e: e.mlir_module(), lambda e: e.mlir_module_serialized):
        with pytest.raises(NotImplementedError, match="StableHLO"):
            ask(exported())


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fnx.pure_callback(np.sin, x, x),
        lambda x: fnx.debug.print("{}", x),
    ],
)
def test_python_does_not_go_into_files(f):
    with pytest.raises(ValueError, match="one process"):
        export.export(fnx.jit(f))(1.0).serialize()


def test_functions_that_are_not_jitted_and_other_platforms():
    with pytest.raises(ValueError, match=r"fnx\.jit"):
        export.export(model)
    with pytest.raises(ValueError, match="cpu"):
        export.export(fnx.jit(model), platforms=["tpu"])


def test_damaged_files_are_refused():
    blob = bytes(exported().serialize())
    rng = np.random.default_rng(0)
    for n in (0, 3, 14, 30, 57, len(blob) - 1):
        with pytest.raises(ValueError, match="expected"):
            export.deserialize(blob[:n])
    for k in [*range(60), *rng.integers(60, len(blob), 40)]:
        bad = bytearray(blob)
        bad[k] ^= 1 << int(rng.integers(8))
        with pytest.raises(ValueError, match="expected"):
            export.deserialize(bad)
    with pytest.raises(TypeError, match="bytes"):
        export.deserialize("text")


def test_files_of_another_version_are_refused():
    blob = exported().serialize()
    blob[13] += 1
    with pytest.raises(ValueError, match="version 2"):
        export.deserialize(blob)


@pytest.mark.parametrize(
    "tree",
    [
        ["function", "os:system"],
        ["object", "subprocess:Popen", ["args", "true"]],
        ["class", "fnx.core.errors:sys"],
        ["primitive", "os:system"],
        ["object", "fnx.core.jaxpr:Jaxpr"],
        ["enum", "fnx.core.jaxpr:Jaxpr", "x"],
        ["ufunc", "load"],
        ["nothing"],
        [],
        7,
    ],
)
def test_files_name_operations_alone(tree):
    """A whole file, with a checksum, that somebody made to have other things looked up, or run."""
    content = unpack(exported().serialize())
    jaxpr = content["body"][0]
    jaxpr[4][0][0] = tree
    with pytest.raises(ValueError, match=r"read|is no "):
        export.deserialize(pack(content)).call(X, Y)


# --- trees -------------------------------------------------------------------------------------


def test_nodes_that_are_registered():
    f = export.export(fnx.jit(lambda p: Pair(p.right, p.left)))(Pair(1.0, X))
    if Pair not in export.trees._names:
        with pytest.raises(ValueError, match="register"):
            f.serialize()
        export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
    found = again(f).call(Pair(2.0, X))
    assert type(found) is Pair
    assert float(found.right) == 2.0
    with pytest.raises(ValueError, match="already"):
        export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")


LASTING = [s for s in all_samples() if "callback" not in s.prim.name]


@pytest.mark.parametrize("sample", LASTING, ids=lambda s: s.id)
def test_primitives_are_what_they_were(sample):
    tree = encoding.encode(sample.prim)
    assert encoding.encode(encoding.decode(tree)) == tree


def test_static_arguments_are_part_of_what_is_exported():
    f = fnx.jit(lambda x, c, *, d: c * x + d, static_argnums=1, static_argnames="d")
    x = np.arange(4.0)
    np.testing.assert_array_equal(export.export(f)(x, 0.5, d=1.0).call(x), 0.5 * x + 1.0)
    np.testing.assert_array_equal(export.export(jnp.square)(x).call(x), x**2)
    with pytest.raises(ValueError, match="expected a jitted function"):
        export.export(lambda x: x)
