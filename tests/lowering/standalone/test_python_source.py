"""fnx.export.python: what the file says, and what it computes where there is no fnx."""

import json
import linecache
import os
import subprocess
import sys
import venv
from typing import NamedTuple

import numba
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.errors import FnxError, InvalidValue

RUN = """
import importlib, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fnx", "interpreters", "lowering", "jax"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import doctest
import numpy as np

def leaves(x):
    if isinstance(x, dict):
        return [y for v in x.values() for y in leaves(v)]
    if isinstance(x, (list, tuple)):
        return [y for v in x for y in leaves(v)]
    return [np.asarray(x)]

wrong = []
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    data = np.load(f"{sys.argv[1]}/{name}.npz")
    args = [data[k] for k in data.files if k[0] == "a"]
    found = leaves(getattr(module, name)(*args))
    wanted = [data[k] for k in data.files if k[0] == "r"]
    for x, y in zip(found, wanted, strict=True):
        assert x.dtype == y.dtype, (name, x.dtype, y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12, err_msg=name)
    failed = doctest.testmod(module).failed
    if failed:
        wrong.append(name)
assert "fnx" not in sys.modules
print(json.dumps(wrong))
"""


def total(xs, w):
    """A sum over a loop."""

    def step(carry, x):
        wave = jnp.sin(carry) + x
        return wave, wave * 2.0

    last, rows = lax.scan(step, 0.0, xs)
    return last + rows @ w


def root(x):
    found = lax.while_loop(lambda y: abs(y * y - x) > 1e-10, lambda y: (y + x / y) / 2, x)
    return found, x


def counts(values, where):
    table = jnp.zeros(5).at[where].add(values)
    return {"sums": table, "order": jnp.argsort(values), "most": [values.max(), jnp.cumsum(values)]}


def fitted(a, b):
    return jnp.sum(jnp.linalg.solve(a @ a.T + jnp.eye(4), b) ** 2)


def drawn(key):
    return fnx.random.normal(key, (4,)), fnx.random.bits(key, (3,))


PROGRAMS = {
    "slope": (fnx.grad(total, (0, 1)), np.linspace(0, 1, 9), np.ones(9)),
    "root": (root, np.float64(2.0)),
    "counts": (counts, np.array([3.0, 1.0, 2.0]), np.array([0, 4, 0])),
    "fitted": (fnx.grad(fitted), np.arange(16.0).reshape(4, 4) % 7, np.ones(4)),
    "drawn": (drawn, np.array([0, 7], np.uint32)),
}


def written(tmp_path):
    for name, (f, *args) in PROGRAMS.items():

        def call(*xs, f=f):
            return f(*xs)

        call.__name__ = name
        fnx.export.python(call, *args).save(tmp_path / f"{name}.py")
        outs = [np.asarray(x) for x in fnx.tree.leaves(f(*args))]
        if name == "counts":  # in the order of keys that the file's dict has as well
            assert list(f(*args)) == ["sums", "order", "most"]
            found = f(*args)
            outs = [
                np.asarray(x)
                for x in (*fnx.tree.leaves(found["most"]), found["order"], found["sums"])
            ]
        given = {f"a{k}": np.asarray(x) for k, x in enumerate(args)}
        np.savez(tmp_path / f"{name}.npz", **given, **{f"r{k}": x for k, x in enumerate(outs)})


@pytest.mark.slow
def test_files_run_where_there_is_no_fnx(tmp_path):
    written(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), *PROGRAMS],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.skipif(
    "FNX_FRESH_VENV" not in os.environ, reason="installs packages: set FNX_FRESH_VENV=1"
)
def test_files_run_in_a_fresh_environment(tmp_path):
    written(tmp_path)
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "numba"], check=True)
    done = subprocess.run(
        [python, "-c", RUN, str(tmp_path), *PROGRAMS], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)


def test_the_source_has_the_users_words(plain):
    text = fnx.export.python(total, np.arange(4.0), np.ones(4))
    assert "import fnx" not in text
    assert "from fnx" not in text
    for part in (
        "def total(xs, w):", '"""A sum over a loop.', "xs: float64[4]", "wave = np.sin(",
        "test_python_source.py:", "last, rows = lax.scan(step, 0.0, xs)", "wave = jnp.sin(carry) + x",
    ):  # fmt: skip
        assert part in text, part


def test_lines_are_known_to_debuggers(plain):
    f = fnx.export.python(lambda x: x + 1, np.ones(2)).function()
    assert linecache.getline(f.__code__.co_filename, f.__code__.co_firstlineno).startswith("def ")


class Pair(NamedTuple):
    first: object
    second: object


def test_trees_names_and_static_arguments(plain):
    @fnx.jit
    def f(params, *rest, scale):
        return Pair(params["w"] * scale, [rest[0], None, (rest[1],)])

    text = fnx.export.python(f, {"w": np.ones(2), "b": 1.0}, 2.0, np.arange(3), scale=3.0)
    found = text.function()({"w": np.ones(2), "b": 1.0}, 2.0, np.arange(3), 3.0)
    first, second = found  # which named tuples are for
    assert first is found.first
    assert second is found.second
    assert type(found).__name__ == "Pair"
    assert found.first.tolist() == [3.0, 3.0]
    assert found.second[1] is None
    assert found.second[2][0].dtype == np.int64
    g = fnx.jit(lambda x, n, y: x * n + y, static_argnums=1)
    assert fnx.export.python(g, 1.0, 3, 2.0).function()(np.float64(1.0), 2.0) == 5.0
    h = fnx.jit(lambda x, mode: x if mode == "a" else -x, static_argnames="mode")
    assert fnx.export.python(h, 1.0, mode="b").function()(4.0) == -4.0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_dtypes_and_shapes(plain, dtype, shape):
    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    f = lambda x: (x, jnp.sum(x), x.T, jnp.concatenate([jnp.atleast_1d(x)] * 2))
    with np.errstate(over="ignore"):  # of bits of float16, as plain Python
        found = fnx.export.python(f, x).function()(x)
    for ours, theirs in zip(found, f(x), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, np.asarray(theirs))


def test_arrays_that_a_function_closes_over(plain):
    small, large = (
        np.array([np.nan, np.inf, -np.inf]),
        np.random.default_rng(0).normal(size=(40, 5)),
    )
    f = lambda x: (jnp.asarray(small) * x, jnp.asarray(large) @ (x * jnp.ones(5)))
    found = fnx.export.python(f, 2.0).function()(2.0)
    np.testing.assert_array_equal(found[0], small * 2)
    np.testing.assert_allclose(found[1], large @ np.full(5, 2.0))


def test_names_that_python_or_numpy_have(plain):
    def f(np, i0, t1, lambda_, out0, jit):
        range = np + i0
        max = range * t1
        return max - lambda_, out0 * jit

    given = [np.arange(3.0) + k for k in range(6)]
    found = fnx.export.python(f, *given).function()(*given)
    for ours, theirs in zip(found, f(*map(jnp.asarray, given)), strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs))


def test_arguments_are_checked(plain):
    f = fnx.export.python(lambda x: x + 1, np.ones(2)).function()
    with pytest.raises(ValueError, match=r"x has the shape \(3,\); this code is for \(2,\)"):
        f(np.ones(3))
    with pytest.raises(TypeError, match="x has the dtype complex128; this code is for float64"):
        f(np.ones(2) * 1j)
    assert f([1, 2]).tolist() == [2.0, 3.0]


def test_what_cannot_be_written():
    with pytest.raises(InvalidValue, match="a bfloat16 array, which NumPy lacks"):
        fnx.export.python(lambda x: x, jnp.ones(2, jnp.bfloat16))
    with pytest.raises(InvalidValue, match="got a traced value"):
        fnx.jit(lambda x: fnx.export.python(jnp.sin, x))(1.0)
    with pytest.raises(FnxError, match="needs a function"):
        fnx.export.python(3)


def test_prints_are_left_out(plain):
    def f(x):
        fnx.debug.print("x is {}", x)
        return x + 1

    text = fnx.export.python(f, 1.0)
    assert "debug_callback is left out" in text
    assert text.function()(1.0) == 2.0
