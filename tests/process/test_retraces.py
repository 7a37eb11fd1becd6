"""Notes of functions that are traced again and again: once each, with what changed."""

from functools import partial

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.process import retraces
from fnx.process.retraces import RetraceWarning


def note(call, arguments):
    """The only warning of these calls."""
    with config.retrace_notes(True), pytest.warns(RetraceWarning) as found:
        [call(*args) for args in arguments]
    (only,) = found
    assert only.filename == __file__
    return str(only.message)


def test_shapes():
    f = fnx.jit(lambda first, second: first + jnp.sum(second))
    text = note(f, [(1.0, np.ones(n)) for n in range(1, 8)])
    assert "<lambda> is traced and compiled for the 3rd time" in text
    assert "What changed: second: shape f64[2] -> f64[3]. Pad arrays" in text


def test_dtypes():
    f = fnx.jit(lambda x: x)
    types = ["int8", "float32", "float64", "int32"]
    text = note(f, [(np.ones(2, t),) for t in types])
    assert "x: dtype f32[2] -> f64[2]. Give arguments one dtype" in text


def test_weak_types():
    f = fnx.jit(lambda x: x)
    text = note(f, [(np.ones(3),), (jnp.float64(1.0),), (1.0,)])
    assert "x: weak type f64[] -> f64[]*" in text


def test_static_values():
    f = fnx.jit(lambda x, n, *, how: x, static_argnames=("n", "how"))
    text = note(lambda n, how: f(1.0, n, how=how), [(1, "a"), (2, "a"), (3, "b")])
    assert "n: static value 2 -> 3; how: static value 'a' -> 'b'. Leave arguments" in text
    f = fnx.jit(lambda x, n: x, static_argnums=1)
    assert "n: static value 1 -> 1.0" in note(f, [(1.0, 0), (1.0, 1), (1.0, 1.0)])


def test_trees_name_the_leaf():
    f = fnx.jit(lambda p: p["w"][0])
    text = note(f, [({"w": [np.ones(n)], "b": 1.0},) for n in range(3)])
    assert "p['w'][0]: shape f64[1] -> f64[2]" in text
    f = fnx.jit(lambda *xs, **more: xs)
    text = note(f, [[1.0] * n for n in range(3)])
    assert "xs[1]: is newly given. Call it with arguments of one structure" in text


def test_many_changes_are_cut_short():
    f = fnx.jit(lambda *xs: xs)
    assert ", and 2 more" in note(f, [[np.ones(n)] * 5 for n in range(3)])


def test_jit_in_a_loop():
    def anew(x):
        def body(x):
            return x + 1.0

        return fnx.jit(body)(x)

    text = note(anew, [(1.0,)] * 6)
    assert "body is traced" in text
    assert "Call jit once, outside of loops" in text
    text = note(lambda x: fnx.jit(lambda y: y * x)(1.0), [(1.0,)] * 6)
    assert "jit was called on it anew" in text


def test_cells_that_are_run_again_are_other_functions():
    with config.retrace_notes(True):
        for _ in range(6):
            exec("import fnx\nfnx.jit(lambda x: x)(1.0)", {})


def test_partial_functions_and_objects():
    class Model:
        def __call__(self, x):
            return x

    def scaled(scale, x):
        return scale * x

    text = note(fnx.jit(partial(scaled, 2.0)), [(np.ones(n),) for n in range(5)])
    assert "x: shape f64[1] -> f64[2]" in text
    assert "Model is traced" in note(fnx.jit(Model()), [(np.ones(n),) for n in range(5)])


def test_classes_that_refuse_what_stands_for_leaves():
    @fnx.tree_util.register_pytree_node_class
    class Strict:
        def __init__(self, x):
            assert hasattr(x, "shape")
            self.x = x

        def tree_flatten(self):
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    class Unseen:
        def __repr__(self):
            raise ValueError("no text")

    f = fnx.jit(lambda s: s.x)
    text = note(f, [(Strict(np.ones(n)),) for n in range(5)])
    assert "leaf 0: shape f64[1] -> f64[2]" in text
    g = fnx.jit(lambda x, n: x, static_argnums=1)
    text = note(lambda: g(1.0, Unseen()), [()] * 5)
    assert "argument 1: static value a value of Unseen -> a value of Unseen" in text


@pytest.mark.slow
def test_functions_of_fnx_are_not_the_users_to_mend():
    with config.retrace_notes(True):
        for n in range(6):
            fnx.jit(jnp.sin)(np.ones(n))
            ref = fnx.new_ref(np.ones(n))
            fnx.jit(lambda r: r[...])(ref)  # traced by a function of fnx's that has the array


def test_nothing_is_said_unless_asked_for():
    f = fnx.jit(lambda x: x)
    for n in range(6):
        f(np.ones(n))
    with config.retrace_notes(True):
        for n in range(2):
            f(np.ones((n, n)))  # the first and the second that are looked at
            f(np.ones((n, n)))


def test_wrong_calls_say_what_they_always_say():
    f = fnx.jit(lambda x: x)
    with config.retrace_notes(True):
        for n in range(4):
            with pytest.raises(TypeError, match="positional argument"):
                f(*[1.0] * (n + 2))


def test_a_history_forgets_functions_that_are_gone():
    history = retraces.History()
    f = fnx.jit(eval("lambda x: x"))
    with config.retrace_notes(False):
        f(1.0)
    history.note(f.fun, f.static, next(iter(f._programs))[:3])
    assert len(history._seen) == 1
    del f
    fnx.clear_caches()
    import gc

    gc.collect()
    assert len(history._seen) == 0
