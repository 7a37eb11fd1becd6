"""What is remembered of functions that were traced: for whom, and for how long."""

import dis
import functools
import gc
import pickle
import weakref

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.interpreters import trace_cache


def counting(fun):
    """A function that counts its calls in `seen`, which it does not give values."""
    seen = []

    def counted(x):
        seen.append(1)
        return fun(x)

    return counted, seen


def test_functions_that_are_jitted_again_are_traced_once():
    f, seen = counting(lambda x: x + 1.0)
    x = jnp.ones(())
    for _ in range(3):
        assert fnx.jit(f)(x) == 2.0
        assert fnx.vmap(fnx.jit(f))(jnp.ones(2)).tolist() == [2.0, 2.0]
        assert fnx.jvp(fnx.jit(f), (x,), (x,))[1] == 1.0
        assert fnx.grad(fnx.jit(fnx.jit(f)))(x) == 1.0
    assert len(seen) == 1
    fnx.jit(f)(jnp.ones(3))
    assert len(seen) == 2


@pytest.mark.parametrize("options", [{"inline": True}, {"backend": "reference"}, {"donate_argnums": 0},
                                     {"static_argnums": 0}])  # fmt: skip
def test_other_options_are_other_programs(options):
    f, seen = counting(jnp.sin)
    assert float(fnx.jit(f)(1.0)) == pytest.approx(float(fnx.jit(f, **options)(1.0)))
    assert len(seen) == 2


def test_other_surroundings_are_traced_anew():
    k = 1.0
    names = {"factor": 2.0}
    of_a_global = eval("lambda x: x * factor", names)

    def of_a_closure(x):
        return x * k

    def loops():
        return float(lax.fori_loop(0, 3, lambda _, x: of_a_closure(x), 1.0))

    assert (fnx.jit(of_a_global)(3.0), fnx.jit(of_a_closure)(3.0), loops()) == (6.0, 3.0, 1.0)
    names["factor"], k = 5.0, 2.0
    assert (fnx.jit(of_a_global)(3.0), fnx.jit(of_a_closure)(3.0), loops()) == (15.0, 6.0, 8.0)


def test_copies_of_attributes_are_of_another_function():
    f, _ = counting(lambda x: x + 1.0)
    fnx.jit(f)(1.0)

    @functools.wraps(f)
    def g(x):
        return f(x) * 10.0

    assert fnx.jit(g)(1.0) == 20.0


def test_what_is_remembered_is_forgotten():
    f, seen = counting(lambda x: x + 1.0)
    for forget in (fnx.clear_caches, lambda: fnx.jit(f).clear_cache(), lambda: None):
        fnx.jit(f)(1.0)
        forget()
    assert len(seen) == 3


def test_many_types_are_not_all_remembered(monkeypatch):
    monkeypatch.setattr(trace_cache.policy, "REMEMBERED_TRACES", 3)
    f, seen = counting(lambda x: x + 1.0)
    for n in (1, 2, 3, 4, 1, 4):
        fnx.jit(f)(jnp.ones(n))
    assert len(seen) == 5


def model(kind):
    """An object whose function leads back to it."""

    class Model:
        def __init__(self):
            self.k = jnp.full(3, 2.0)

            def step(c, _=None):
                return c + self.k, None

            self.step = step

        def __call__(self, c, _):
            return c + self.k, None

    m = Model()
    if kind == "scan":
        lax.scan(m.step, jnp.zeros(3), None, length=4)
    elif kind == "jit":
        fnx.jit(m.step)(jnp.zeros(3))
    else:
        m.itself = m
        lax.scan(m, jnp.zeros(3), None, length=4)
    return m


@pytest.mark.parametrize("kind", ["scan", "jit"])
def test_functions_that_lead_back_to_themselves_are_freed(kind):
    m = model(kind)
    lives = weakref.ref(m)
    del m
    gc.collect()
    assert lives() is None


def test_objects_that_lead_back_to_themselves_are_few(monkeypatch):
    monkeypatch.setattr(trace_cache, "_recent", type(trace_cache._recent)(maxlen=2))
    lives = [weakref.ref(model("object")) for _ in range(5)]
    gc.collect()
    assert sum(one() is not None for one in lives) <= 2


def test_traced_values_that_functions_close_over():
    @fnx.jit
    def outer(x):
        def inner(y):
            return x * y

        return fnx.jit(inner)(2.0) + fnx.jit(inner)(3.0)

    assert (outer(2.0), outer(4.0)) == (10.0, 20.0)
    assert fnx.grad(outer)(2.0) == 5.0
    held = []

    def keeps(x):
        held[:] = [lambda y: x * y]
        return fnx.jit(held[0])(2.0)

    assert fnx.jit(keeps)(3.0) == 6.0
    with pytest.raises(fnx.errors.UnexpectedTracerError):
        fnx.jit(held[0])(2.0)


def test_what_is_remembered_is_not_pickled():
    f, _ = counting(lambda x: x + 1.0)
    fnx.jit(f)(1.0)
    (traces,) = f.__dict__.values()
    assert pickle.loads(pickle.dumps(traces)) is None


def test_names_that_functions_give_values():
    """As Python's own disassembler finds them."""
    outer = inner = 0

    def f(a, b):
        nonlocal inner
        own = a
        inner = own
        return lambda: (own, b, outer)

    def g(a):
        own = a
        return lambda: (own, outer)

    many = "; ".join(f"v{k} = {k}" for k in range(300))
    names: dict = {}
    exec(f"def h():\n    global last\n    {many}\n    last = lambda: (v0, v299)\n", names)
    found = {fun.__name__: trace_cache._assigned(fun.__code__) for fun in (f, g, names["h"])}
    assert found == {"f": {"inner"}, "g": frozenset(), "h": {"last"}}
    for fun in (f, g, names["h"], test_names_that_functions_give_values, counting):
        code = fun.__code__
        stored = [
            i for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "STORE_DEREF")
        ]
        by_python = {
            i.argval for i in stored if i.opname == "STORE_GLOBAL" or i.argval in code.co_freevars
        }
        assert trace_cache._assigned(code) == by_python
