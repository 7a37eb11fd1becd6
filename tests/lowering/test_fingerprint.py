"""Names of jaxprs: equal for equal programs, different for different ones, none for users' functions."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from samples import all_samples

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.core.array import ConcreteArray
from fnx.interpreters.passes import compiled
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.trace import trace_closed
from fnx.lowering import fingerprint

X = np.arange(20.0)


def name(f, *args):
    jaxpr = fnx.jit(f).trace(*args).jaxpr.jaxpr
    return fingerprint.of(simplify(jaxpr, final=True))


def test_the_same_program_has_the_same_name():
    def make():
        def f(x, n):
            return lax.fori_loop(0, 10, lambda i, y: jnp.sin(y) * n + i, x)

        return f

    assert name(make(), X, 3.0) == name(make(), X, 3.0) is not None


@pytest.mark.parametrize(
    "other",
    [
        lambda x: jnp.sin(x) * 2.0,
        lambda x: jnp.cos(x) * 3.0,
        lambda x: 3.0 * jnp.sin(x),
        lambda x: (jnp.sin(x) * 3.0).astype("float32"),
        lambda x: (jnp.sin(x) * 3.0, x),
        lambda x: jnp.sin(x * 3.0),
        lambda x: jnp.sin(x) * 3.0 + 0.0,
    ],
)
def test_another_program_has_another_name(other):
    assert name(lambda x: jnp.sin(x) * 3.0, X) != name(other, X)


def test_names_tell_zeros_nans_and_types_apart():
    values = [0.0, -0.0, 0, False, float("nan"), 1.0, np.float32(0), np.int32(0), 0j]
    names = {name(lambda x, v=v: (x + x, jnp.full(20, v)), X) for v in values}
    assert len(names) == len(values)


def test_sizes_and_weak_types_count():
    names = {
        name(jnp.sin, a) for a in (X, X[:19], X[:, None], X.astype("float32"), 1.0, np.float64(1))
    }
    assert len(names) == 6


def test_users_functions_have_no_name():
    def f(x):
        return fnx.pure_callback(lambda v: v + 1, fnx.ShapeDtypeStruct((20,), "float64"), x)

    assert name(f, X) is None


def test_primitives_are_told_apart():
    """Samples whose jaxprs are printed differently have different names."""
    printed: dict = {}
    nameless = set()
    for sample in all_samples():
        args = [ConcreteArray(np.asarray(a)) for a in sample.args]
        jaxpr = trace_closed(lambda *xs, p=sample.prim: p.apply(*xs), [a.aval for a in args])
        found = fingerprint.of(jaxpr)
        if found is None:
            nameless.add(sample.prim.name)
        else:
            assert printed.setdefault(found, str(jaxpr)) == str(jaxpr)
    assert nameless <= {"pure_callback", "constant"}  # these call back into Python


_PROGRAM = """
import json, sys
import numpy as np, fnx, fnx.numpy as jnp
from fnx import lax
def f(a, x):
    y = lax.scan(lambda c, t: (jnp.sin(c) * t, c.sum()), x, jnp.arange(3.0))[1]
    return jnp.linalg.solve(a @ a.T, x), y
out = fnx.jit(fnx.grad(lambda a, x: sum(v.sum() for v in f(a, x))))(np.eye(40) + 1, np.ones(40))
given = jnp.arange(30.0)
update = fnx.jit(lambda x, y: (y * 2.0, x.at[3:9].set(1.5)), donate_argnums=0)
out = jnp.append(out, jnp.concatenate(update(given, jnp.ones(5))))
assert given.is_deleted()
heavy = ("fnx.lowering.generate.builder", "fnx.lowering.cpu.llvm.module_printer", "numba", "scipy.linalg")
heavy = [n for n in heavy if n in sys.modules]
print(json.dumps([out.tolist(), fnx.compile_stats()["kernels_compiled"], heavy]))
"""


@pytest.mark.slow
def test_a_second_process_runs_no_passes(tmp_path):
    env = {**os.environ, "FNX_CACHE_DIR": str(tmp_path)}

    def run():
        command = [sys.executable, "-W", "error", "-c", _PROGRAM]
        return json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)

    first, second = run(), run()
    assert first[0] == second[0]
    assert first[1] > 0
    assert second[1:] == [0, []]


def test_a_known_program_is_not_simplified(monkeypatch):
    def make():
        inner = fnx.jit(lambda x: jnp.sin(x) * 1.375)
        return fnx.jit(lambda x: (inner(x) + inner(x * 2), 2.0, x.sum()))

    first = make()(X)
    monkeypatch.setattr(compiled, "simplify", None)
    again = make()(X)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.aval == b.aval
    with pytest.raises(TypeError):
        fnx.jit(lambda x: jnp.sin(x) * 1.625)(X)


def test_a_program_with_rules_of_users_is_known_by_what_is_lowered():
    def make():
        @fnx.custom_jvp
        def f(x):
            return jnp.sin(x) * 1.1875

        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return fnx.jit(lambda x: f(x) + 1.0).lower(X)

    raw = make().program.jaxpr
    assert fingerprint.of(raw) is None
    assert fingerprint.of(simplify(raw, final=True)) is not None
    first = make().compile()(X)
    again = make().compile()
    assert "recall" in again.seconds
    np.testing.assert_array_equal(first, again(X))


def test_simplified_programs_have_the_types_of_what_they_are_made_of():
    for sample in all_samples():
        args = [ConcreteArray(np.asarray(a)) for a in sample.args]
        jaxpr = trace_closed(lambda *xs, p=sample.prim: p.apply(*xs), [a.aval for a in args])
        simple = simplify(jaxpr, final=True)
        assert simple.in_avals == jaxpr.in_avals
        assert simple.out_avals == jaxpr.out_avals


def test_a_jaxpr_in_many_places_is_named_once():
    def twice(f):
        return fnx.jit(lambda x: f(f(x)))

    f = jnp.sin
    for _ in range(40):  # a tree of a million million calls
        f = twice(f)
    jaxpr = fnx.jit(f).trace(X).jaxpr.jaxpr
    assert len(fingerprint.of(jaxpr)) < 10_000


def test_what_is_shown_of_a_recalled_program():
    f = fnx.jit(lambda x: jnp.tanh(x) * 2.25)
    first = f.lower(X)
    texts = {k: first.as_text(k) for k in ("kernel", "numba", "llvm", "asm")}
    second = fnx.jit(lambda x: jnp.tanh(x) * 2.25).lower(X)
    compiled = second.compile()
    assert "recall" in compiled.seconds or "recall" in second.program.compiled().seconds
    assert texts == {k: second.as_text(k) for k in texts}
    assert compiled.memory_analysis().temp_size_in_bytes >= 0


def test_checks_are_not_left_out():
    f = lambda x: jnp.tanh(x) * 3.25
    fnx.jit(f)(X)
    with config.check(True):
        again = fnx.jit(lambda x: jnp.tanh(x) * 3.25)
        assert "check" in again.lower(X).program.compiled().seconds
