"""Static arguments of jit: by number and by name, compared with their types, of any kind that hashes."""

import functools

import pytest
from traced import traced_times

import fnx
import fnx.numpy as jnp


def power(x, n):
    assert isinstance(n, int)
    out = 1.0
    for _ in range(n):
        out = out * x
    return out


@pytest.mark.parametrize("options", [
    {"static_argnums": 1}, {"static_argnums": (1,)}, {"static_argnums": -1},
    {"static_argnames": "n"}, {"static_argnames": ["n"]}, {"static_argnums": 1, "static_argnames": "n"},
])  # fmt: skip
def test_static_by_number_and_by_name(options):
    f, times = traced_times(power)
    g = fnx.jit(f, **options)
    for _ in range(2):
        assert float(g(3.0, 2)) == 9.0
        assert float(g(3.0, n=2)) == 9.0
        assert float(g(x=3.0, n=3)) == 27.0
    assert len(times) == 3  # by position, by name, and another value and structure


def test_static_values_are_compared_with_their_types():
    seen = []

    @functools.partial(fnx.jit, static_argnames="flag")
    def f(x, flag):
        seen.append(flag)
        return x

    for flag in (1, True, 1.0, "1", None, (1, 2), 1, True):
        f(0.0, flag)
        f(0.0, flag=flag)
    assert [type(s) for s in seen[::2]] == [int, bool, float, str, type(None), tuple]


def test_static_default_and_keyword_only():
    @functools.partial(fnx.jit, static_argnames=("n", "mode"))
    def f(x, n=2, *, mode="double"):
        return x * n if mode == "double" else x

    assert float(f(3.0)) == 6.0
    assert float(f(3.0, mode="same")) == 3.0
    assert float(f(3.0, 5)) == 15.0
    assert float(f(3.0, n=5, mode="double")) == 15.0


def test_static_in_the_middle_and_in_variadic_functions():
    f = fnx.jit(lambda a, op, b: op(a, b), static_argnums=1)
    assert float(f(2.0, jnp.add, 3.0)) == 5.0
    assert float(f(2.0, jnp.multiply, 3.0)) == 6.0
    last = fnx.jit(lambda *xs: xs[0] * xs[-1], static_argnums=-1)
    assert float(last(2.0, 5.0, 3)) == 6.0
    keywords = fnx.jit(lambda x, **options: x if options["same"] else -x, static_argnames="same")
    assert float(keywords(2.0, same=False)) == -2.0
    assert float(keywords(2.0, same=True)) == 2.0


def test_static_functions_and_objects():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(fnx.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    one, two = Model(2.0), Model(3.0)
    for _ in range(2):
        assert float(one(1.0)) == 2.0
        assert float(two(1.0)) == 3.0


def test_a_decorator_with_and_without_options():
    @fnx.jit
    def f(x):
        "The doc."
        return x + 1

    @fnx.jit(static_argnames="n")
    def g(x, n):
        return x + n

    assert float(f(1.0)) == 2.0
    assert float(g(1.0, n=2)) == 3.0
    assert (f.__name__, f.__doc__) == ("f", "The doc.")


def test_methods_and_pytree_objects():
    @fnx.tree_util.register_pytree_node_class
    class Point:
        def __init__(self, x, y):
            self.x, self.y = x, y

        def tree_flatten(self):
            return (self.x, self.y), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

        @fnx.jit
        def moved(self, dx):
            return Point(self.x + dx, self.y)

    p = Point(1.0, 2.0).moved(3.0)
    for _ in range(2):
        p = p.moved(1.0)
    assert (float(p.x), float(p.y)) == (6.0, 2.0)


def test_stages_with_static_arguments():
    f = fnx.jit(power, static_argnames="n")
    compiled = f.lower(2.0, n=3).compile()
    assert float(compiled(3.0, n=3)) == 27.0
    assert f.eval_shape(2.0, n=3).shape == ()


def test_compiled_functions_get_the_arguments_that_are_not_static():
    f = fnx.jit(lambda n, x: x * n, static_argnums=0)
    compiled = f.lower(3, 2.0).compile()
    assert float(compiled(2.0)) == 6.0
    with pytest.raises(TypeError, match="structure"):
        compiled(2.0, 3.0, 4.0)
