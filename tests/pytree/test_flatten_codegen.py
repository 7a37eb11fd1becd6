"""The short way of a call: arguments and results of every kind of pytree, NumPy's scalars."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import tree_util

Pair = namedtuple("Pair", "a b")


@tree_util.register_dataclass
@dataclass
class Body:
    x: Any
    v: Any
    kind: str = field(default="earth", metadata={"static": True})


class Plain:
    def __init__(self, x, tag):
        self.x, self.tag = x, tag


tree_util.register_pytree_node(
    Plain, lambda p: ((p.x,), p.tag), lambda tag, xs: Plain(*xs, tag=tag)
)


class Keyed(Plain):
    pass


tree_util.register_pytree_with_keys(
    Keyed,
    lambda p: (((tree_util.GetAttrKey("x"), p.x),), p.tag),
    lambda tag, xs: Keyed(*xs, tag=tag),
)


def short(f):
    """How many programs of a jitted function are called the short way."""
    return len(f._last)


@pytest.mark.parametrize(
    "tree",
    [
        Pair(1.0, 2.0),
        Pair((1.0, None), {"k": [2.0]}),
        Body(1.0, 2.0),
        Body(Pair(1.0, 2.0), [3.0], "moon"),
        Plain(1.0, "tag"),
        Keyed([1.0, 2.0], ("a", 1)),
        [Body(Plain(1.0, None), Keyed(2.0, 1)), Pair(3.0, ())],
        tree_util.Partial(jnp.multiply, 2.0),
    ],
)
def test_every_kind_of_node_is_known(tree):
    f = fnx.jit(lambda t: tree_util.tree_map(lambda x: 2.0 * x, t))
    for _ in range(3):
        out = f(tree)
        assert tree_util.tree_structure(out) == tree_util.tree_structure(tree)
        assert type(out) is type(tree)
        expected = [2.0 * x for x in tree_util.tree_leaves(tree)]
        assert tree_util.tree_leaves(out) == expected
        assert short(f) == 1


def test_other_static_data_are_another_program():
    traced = []

    @fnx.jit
    def f(b):
        traced.append(b.kind)
        return b.x + (1.0 if b.kind == "earth" else 10.0)

    for _ in range(2):
        assert f(Body(1.0, 2.0)) == 2.0
        assert f(Body(1.0, 2.0, "moon")) == 11.0
    assert traced == ["earth", "moon"]
    g = fnx.jit(lambda p: p.x * (1.0 if p.tag is None else p.tag))
    for _ in range(2):
        assert [float(g(Plain(3.0, tag))) for tag in (None, 2, 4)] == [3.0, 6.0, 12.0]


def test_other_classes_of_one_shape_are_other_programs():
    kinds = []

    @fnx.jit
    def f(t):
        kinds.append(type(t))
        return tree_util.tree_leaves(t)[0] + 1.0

    trees = [(1.0, 2.0), [1.0, 2.0], Pair(1.0, 2.0), Body(1.0, 2.0), OrderedDict(a=1.0, b=2.0)]
    for _ in range(3):
        for t in trees:
            assert f(t) == 2.0
    assert kinds == [type(t) for t in trees]


def test_children_that_come_and_go():
    class Bag:
        def __init__(self, *xs):
            self.xs = xs

    tree_util.register_pytree_node(Bag, lambda b: (iter(b.xs), None), lambda _, xs: Bag(*xs))
    f = fnx.jit(lambda b: sum(b.xs, 0.0))
    for _ in range(3):
        assert f(Bag(1.0, 2.0)) == 3.0
        assert f(Bag(1.0)) == 1.0
        assert f(Bag()) == 0.0


SCALARS = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
SCALARS += ["complex64", "complex128"]


@pytest.mark.parametrize("name", [*SCALARS, "bfloat16"])
def test_scalars_of_numpy(name):
    kind = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name).type
    f = fnx.jit(lambda x, y: (x, y + jnp.ones(3)))
    values = [kind(0), kind(1), kind(100 if name != "bool" else 1)]
    for value in values + values:
        x, y = f(value, 2.0)
        assert x.dtype == np.dtype(kind)
        assert not x.weak_type
        assert x.shape == ()
        assert np.asarray(x) == value
        np.testing.assert_array_equal(y, np.full(3, 3.0))
    assert short(f) == 1


def test_scalars_and_python_numbers_take_turns():
    """A NumPy scalar is strong, and a Python number is weak, whatever came before."""
    f = fnx.jit(lambda x: x + jnp.ones(2, "float32"))
    for _ in range(3):
        assert f(1.0).dtype == "float32"
        assert f(np.float64(1.0)).dtype == "float64"
        assert f(np.float32(1.0)).dtype == "float32"
        assert f(np.ones(())).dtype == "float64"
        assert f(np.int64(1)).dtype == (np.ones(1, "float32") + fnx.numpy.int64(1)).dtype
        assert f(np.ones(2)).shape == (2,)


def test_subclasses_of_numpy_scalars():
    class Meters(np.float64):
        pass

    f = fnx.jit(lambda x: 2 * x)
    for _ in range(2):
        assert f(np.float64(1.5)) == 3.0
        assert f(Meters(2.5)) == 5.0
