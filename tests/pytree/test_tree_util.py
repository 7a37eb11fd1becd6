"""Pytrees against JAX's documented behaviour: None, order of keys, paths, registered classes."""

import dataclasses
import functools
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import tree, tree_util

Point = namedtuple("Point", "x y")


class Box:
    """A node registered without keys."""

    def __init__(self, a, b, tag="t"):
        self.a, self.b, self.tag = a, b, tag

    def __eq__(self, other):
        return (self.a, self.b, self.tag) == (other.a, other.b, other.tag)


tree_util.register_pytree_node(
    Box, lambda x: ((x.a, x.b), x.tag), lambda tag, children: Box(*children, tag)
)


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def tree_flatten(self):
        return (self.left, self.right), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)


@tree_util.register_pytree_with_keys_class
class Keyed:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def tree_flatten_with_keys(self):
        key = tree_util.GetAttrKey
        return ((key("left"), self.left), (key("right"), self.right)), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(*children)


@tree_util.register_dataclass
@dataclasses.dataclass
class Params:
    w: object
    b: object
    name: str = dataclasses.field(default="n", metadata={"static": True})


@tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Config:
    depth: int


TREES = [
    (3, [3]),
    (None, []),
    ((1, [2, {"b": 4, "a": 3}], None), [1, 2, 3, 4]),
    (Point(1, (2, 3)), [1, 2, 3]),
    (OrderedDict([("b", 1), ("a", 2)]), [1, 2]),
    (Box(1, [2, None]), [1, 2]),
    ({"p": Params(1, 2, "q"), "c": Config(3)}, [1, 2]),
]


@pytest.mark.parametrize(("value", "leaves"), TREES)
def test_flatten_and_back(value, leaves):
    found, treedef = tree.flatten(value)
    assert found == leaves
    assert treedef.num_leaves == len(leaves)
    assert tree.unflatten(treedef, found) == value
    assert tree.structure(value) == treedef
    assert tree.leaves(value) == leaves


def test_map_takes_prefixes_and_keeps_none():
    assert tree.map(lambda x: x + 1, {"a": None, "b": (1, 2)}) == {"a": None, "b": (2, 3)}
    assert tree.map(lambda x, y: (x, y), [1, 2], [{"k": 3}, (4,)]) == [(1, {"k": 3}), (2, (4,))]
    assert tree.map(lambda x: 0 if x is None else x, [None, 1], is_leaf=lambda x: x is None) == [
        0,
        1,
    ]
    with pytest.raises(ValueError, match=r"(?i)length|arity|expected"):
        tree.map(lambda x, y: x, [1, 2], [1, 2, 3])


def test_unflatten_with_a_wrong_number_of_leaves():
    with pytest.raises(ValueError, match="leaves"):
        tree.unflatten(tree.structure([1, 2]), [1])


def test_reduce_and_all():
    assert tree.reduce(lambda x, y: x + y, [1, (2, 3)]) == 6
    assert tree.reduce(lambda x, y: x + y, [], 5) == 5
    assert tree.reduce_associative(lambda x, y: x + y, ["a", "b", "c"]) == "abc"
    assert tree.reduce_associative(max, [], identity=0) == 0
    assert tree.all([True, 1])
    assert not tree.all([True, 0])


def test_transpose():
    value = [(1, 2), (3, 4), (5, 6)]
    outer, inner = tree.structure([0, 0, 0]), tree.structure((0, 0))
    assert tree.transpose(outer, inner, value) == ([1, 3, 5], [2, 4, 6])
    assert tree.transpose(outer, None, value) == ([1, 3, 5], [2, 4, 6])
    with pytest.raises(TypeError, match="transposed"):
        tree.transpose(inner, outer, value[:2])


def test_transpose_of_nodes_that_know_what_is_below_them():
    class Whole:
        def __init__(self, entries):
            self.entries = entries

    def flatten(x):
        leaves, structure = tree.flatten(x.entries)
        return leaves, structure

    register = tree_util.register_pytree_node
    register(Whole, flatten, lambda structure, xs: Whole(tree.unflatten(structure, xs)))
    outer, inner = tree.structure(Whole({"a": 0, "b": 0})), tree.structure([0, 0])
    first, second = tree.transpose(outer, inner, Whole({"a": [3, 4], "b": [5, 6]}))
    assert (first.entries, second.entries) == ({"a": 3, "b": 5}, {"a": 4, "b": 6})


def test_treedefs():
    assert tree_util.treedef_is_leaf(tree.structure(1))
    assert not tree_util.treedef_is_leaf(tree.structure(None))
    pair = tree_util.treedef_tuple([tree.structure(1), tree.structure([1])])
    assert pair == tree.structure((1, [1]))
    assert tree_util.treedef_children(pair) == [tree.structure(1), tree.structure([1])]
    assert hash(pair) == hash(tree.structure((2, [3])))
    assert tree_util.all_leaves([1, 2])
    assert not tree_util.all_leaves([1, [2]])


def test_paths():
    value = {"a": [1, Point(2, 3)], "b": Box(4, 5), "c": Keyed(6, Params(7, 8))}
    pairs, treedef = tree.flatten_with_path(value)
    names = [tree_util.keystr(path) for path, _ in pairs]
    assert names == [
        "['a'][0]",
        "['a'][1].x",
        "['a'][1].y",
        "['b'][<flat index 0>]",
        "['b'][<flat index 1>]",
        "['c'].left",
        "['c'].right.w",
        "['c'].right.b",
    ]
    assert treedef == tree.structure(value)
    assert tree_util.keystr(pairs[1][0], simple=True, separator="/") == "a/1/x"
    assert tree.map_with_path(lambda p, x, y: (len(p), x + y), [1, (2,)], [10, (20,)]) == [
        (1, 11),
        ((2, 22),),
    ]
    assert tree.leaves_with_path((5,)) == [((tree_util.SequenceKey(0),), 5)]


def test_a_rule_for_leaves_may_look_at_paths():
    stop = lambda path, x: len(path) == 1
    pairs, _ = tree.flatten_with_path({"a": (1, 2), "b": 3}, stop, is_leaf_takes_path=True)
    assert [x for _, x in pairs] == [(1, 2), 3]


def test_partial_is_a_tree():
    f = tree_util.Partial(lambda x, y, z=0: x + y * z, 1, z=3)
    assert f(2) == 7
    assert tree.leaves(f) == [1, 3]
    assert tree.map(lambda x: 2 * x, f)(2) == 14


def test_partial_of_a_partial_keeps_its_own_arguments():
    inner = functools.partial(lambda x, y, z: (x, y, z), 1)
    f = tree_util.Partial(inner, 2)
    assert f(3) == (1, 2, 3)
    assert f.args == (2,)
    assert tree.leaves(f) == [2]
    assert f.func == inner
    assert tree.structure(f) == tree.structure(tree_util.Partial(inner, 5))


def test_text_keys_of_registered_classes():
    class Pair:
        def __init__(self, a):
            self.a = a

    tree_util.register_pytree_with_keys(
        Pair, lambda p: ((("a", p.a),), None), lambda _, c: Pair(*c)
    )
    assert tree_util.tree_leaves_with_path(Pair(1)) == [(("a",), 1)]


def test_unravel_is_equal_for_equal_trees_and_keeps_one_dtype():
    x = fnx.numpy.arange(6.0)
    flat, unravel = fnx.flatten_util.ravel_pytree({"a": x, "b": x})
    assert unravel(flat < 3)["a"].dtype == bool
    assert unravel == fnx.flatten_util.ravel_pytree({"a": x + 1, "b": x})[1]
    flat, unravel = fnx.flatten_util.ravel_pytree((x, x.astype("float32")))
    with pytest.raises(TypeError, match="dtype"):
        unravel(flat < 3)
    flat, unravel = fnx.flatten_util.ravel_pytree((x, 1j * x))
    assert [leaf.dtype for leaf in unravel(flat)] == [float, complex]  # without a warning


def test_dataclasses():
    assert tree.map(lambda x: -x, Params(1, 2, "z")) == Params(-1, -2, "z")
    assert tree.structure(Params(1, 2, "z")) != tree.structure(Params(1, 2, "y"))

    @dataclasses.dataclass
    class Two:
        a: int
        b: int

    with pytest.raises(ValueError, match="all its fields"):
        tree_util.register_dataclass(Two, data_fields=["a"], meta_fields=[])
    with pytest.raises(ValueError, match="both name"):
        tree_util.register_dataclass(Two, data_fields=["a", "b"], meta_fields=["b"])

    @dataclasses.dataclass
    class Late:
        a: int
        b: int = dataclasses.field(default=0, init=False)

    with pytest.raises(ValueError, match="init=False"):
        tree_util.register_dataclass(Late)
    tree_util.register_dataclass(Late, drop_fields=["b"])
    with pytest.raises(TypeError, match="not a dataclass"):
        tree_util.register_dataclass(type("Plain", (), {}))
    tree_util.register_dataclass(Two, data_fields=["a"], meta_fields=["b"])
    assert tree.leaves(Two(1, 2)) == [1]
    with pytest.raises(ValueError, match="registered"):
        tree_util.register_dataclass(Two, data_fields=["a"], meta_fields=["b"])


def test_one_level():
    one = tree_util.flatten_one_level
    assert one({"b": 1, "a": (2, 3)}) == ([(2, 3), 1], ("a", "b"))
    assert one(((1, 2), 3))[0] == [(1, 2), 3]
    assert one(tree_util.Partial(max, 1))[0] == [(1,), {}]
    with pytest.raises(ValueError, match="leaf"):
        one(3)
    kinds = tuple, dict, type(None), tree_util.Partial, int, str
    nodes = [tree_util.is_tree_node(t) for t in kinds]
    assert nodes == [True] * 4 + [False] * 2


def test_the_registry_as_an_object():
    registry = tree_util.default_registry
    assert registry.flatten_one_level([1, (2,)]) == ([1, (2,)], None)
    assert registry.flatten_one_level(None) == ([], None)
    assert registry.flatten_one_level(3.0) is registry.flatten_one_level_with_keys(3.0) is None

    class Pair:
        def __init__(self, *parts):
            self.parts = parts

    registry.register_node(Pair, lambda p: (p.parts, "pair"), lambda _, parts: Pair(*parts))
    assert registry.flatten_one_level(Pair(1, [2])) == ([1, [2]], "pair")
    assert registry.is_node(Pair)
    assert registry.flatten(Pair(1, [2]))[0] == [1, 2]


def test_prefixes():
    assert tree_util.broadcast_prefix([1, 2], [(0, 0), 0]) == [1, 1, 2]
    assert tree.broadcast([1, 2], [(0, 0), 0]) == [(1, 1), 2]
    # None is a leaf of the prefix, where that is asked for, and none of the full tree.
    is_none = lambda x: x is None
    assert tree_util.broadcast_prefix([1, None], [None, (0, 0)], is_none) == [None, None]
    assert tree.broadcast([1, None], [(0, None), None], is_none) == [(1, None), None]


def test_differences_are_described():
    text = tree_util.describe_difference({"a": 1, "b": 2}, {"a": 1, "c": (2, 3)})
    assert "lacks the leaf \"['b']\"" in text
    assert "has the leaf \"['c'][0]\"" in text
    assert tree_util.describe_difference((1,), (2,)) == ""


def test_keys_meet_arrays():
    keys = {"a": fnx.random.key(0), "b": [fnx.random.key(1)]}
    sizes = {"a": jnp.ones(2), "b": [jnp.ones(3)]}
    draw = lambda k, x: fnx.random.normal(k, x.shape)
    for f in (draw, fnx.jit(lambda k, x: fnx.tree.map(draw, k, x))):
        out = fnx.tree.map(f, keys, sizes) if f is draw else f(keys, sizes)
        np.testing.assert_allclose(out["b"][0], fnx.random.normal(fnx.random.key(1), (3,)), 1e-12)
    with pytest.raises(ValueError):
        fnx.tree.map(draw, keys, {"a": jnp.ones(2)})


def test_static_fields_and_keys_of_one_level():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Spring:
        stiffness: float
        name: str = tree.static(default="left", metadata={"unit": None})

    spring = Spring(2.0)
    assert tree.leaves(spring) == [2.0]
    assert tree.map(lambda x: 2 * x, spring) == Spring(4.0)
    assert dataclasses.fields(spring)[1].metadata["unit"] is None
    assert tree.static(metadata={"static": False}).metadata == {"static": False}
    pairs, _ = tree_util.flatten_one_level_with_keys(spring)
    assert pairs == [(tree_util.GetAttrKey("stiffness"), 2.0)]
    pairs, names = tree_util.flatten_one_level_with_keys({"b": [1], "a": 2})
    assert pairs == [(tree_util.DictKey("a"), 2), (tree_util.DictKey("b"), [1])]
    assert names == ("a", "b")
    with pytest.raises(ValueError, match="is a leaf"):
        tree_util.flatten_one_level_with_keys(3.0)


def test_placeholders_of_leaves_are_plain_objects():
    # Classes whose rules look at their leaves know such placeholders from JAX.
    @tree_util.register_pytree_node_class
    class Box:
        def __init__(self, **parts):
            self.parts = parts

        def tree_flatten(self):
            arrays = {
                k: v for k, v in self.parts.items() if hasattr(v, "dtype") or type(v) is object
            }
            rest = tuple((k, v) for k, v in self.parts.items() if k not in arrays)
            return tuple(arrays.values()), (tuple(arrays), rest)

        @classmethod
        def tree_unflatten(cls, data, leaves):
            return cls(**dict(data[1]), **dict(zip(data[0], leaves)))

    box = fnx.vmap(lambda x: Box(x=x, y=x.sum(), n=3))(jnp.ones((2, 3)))
    assert box.parts["x"].shape == (2, 3)
    assert box.parts["y"].shape == (2,)
    assert box.parts["n"] == 3


def test_mappings_that_are_registered_with_keys_keep_theirs():
    class Frozen(Mapping):
        def __init__(self, entries):
            self.entries = entries

        __getitem__ = lambda self, key: self.entries[key]
        __iter__ = lambda self: iter(self.entries)
        __len__ = lambda self: len(self.entries)

    def flatten(x):
        return [(tree_util.DictKey(k), v) for k, v in x.entries.items()], tuple(x.entries)

    tree_util.register_pytree_with_keys(
        Frozen, flatten, lambda keys, xs: Frozen(dict(zip(keys, xs)))
    )
    ((path, leaf),) = fnx.tree.leaves_with_path(Frozen({"a": Frozen({"b": 1})}))
    assert path == (tree_util.DictKey("a"), tree_util.DictKey("b"))
    assert leaf == 1


def test_arrays_of_keys_are_leaves_of_users_trees():
    """As in JAX, though transformations take the words of a key out of it."""
    keys = fnx.random.split(fnx.random.key(0), 3)
    tree = {"a": (keys, 1.0), "b": keys[0]}
    assert fnx.tree.map(jnp.shape, tree) == {"a": ((3,), ()), "b": ()}
    leaves, treedef = fnx.tree.flatten(tree)
    assert [jnp.shape(x) for x in leaves] == [(3,), (), ()]
    assert bool(fnx.tree.unflatten(treedef, leaves)["b"] == keys[0])
    assert treedef == fnx.tree.structure(tree) == fnx.tree.structure({"a": (0, 0), "b": 0})
    assert [jnp.shape(x) for _, x in fnx.tree.leaves_with_path(tree)] == [(3,), (), ()]
    assert fnx.tree.leaves(keys, is_leaf=lambda x: x is None)[0] is keys
    same = fnx.tree.map(lambda a, b: bool(jnp.all(a == b)), tree, tree)
    assert fnx.tree.all(same)
    many = [{"a": k} for k in range(12)]
    assert fnx.tree.map(lambda *xs: sum(xs), *many) == {"a": 66}
    assert fnx.tree.map_with_path(lambda path, *xs: sum(xs), *many) == {"a": 66}
    assert tree_util.treedef_is_leaf(fnx.tree.structure(keys))
    assert not tree_util.is_tree_node(type(keys))
    assert tree_util.all_leaves([keys])
    with pytest.raises(ValueError, match="leaf"):
        tree_util.flatten_one_level(keys)
    paths = fnx.tree.leaves_with_path(tree, lambda path, x: False, True)
    assert [x.shape for _, x in paths if hasattr(x, "shape")] == [(3,), ()]


def test_trees_are_flattened_without_keys_until_paths_are_asked_for():
    asked = []

    class Pair:
        def __init__(self, x, y):
            self.x, self.y = x, y

    def bare(p):
        asked.append("bare")
        return (p.x, p.y), "data"

    def keyed(p):
        asked.append("keys")
        keys = tree_util.GetAttrKey("x"), tree_util.GetAttrKey("y")
        return zip(keys, (p.x, p.y), strict=True), "data"

    tree_util.register_pytree_with_keys(Pair, keyed, lambda _, c: Pair(*c), bare)
    key = fnx.random.key(0)
    nested = {"p": Pair(None, [Pair(1, key), Box(2, Pair(3, ()))]), "q": 4}
    leaves, structure = tree_util.tree_flatten(nested)
    assert [x for x in leaves if x is not key] == [1, 2, 3, 4]
    assert set(asked) == {"bare"}
    pairs, again = tree_util.tree_flatten_with_path(nested)
    assert again == structure
    assert [x for _, x in pairs] == leaves
    assert "keys" in asked
    assert [tree_util.keystr(path) for path, _ in pairs] == [
        "['p'].y[0].x",
        "['p'].y[0].y",
        "['p'].y[1][<flat index 0>]",
        "['p'].y[1][<flat index 1>].x",
        "['q']",
    ]
    inner = lambda x: x is None or isinstance(x, Pair) and x.x == 1
    pairs, _ = tree_util.tree_flatten_with_path(nested, inner)
    assert [tree_util.keystr(path) for path, _ in pairs] == [
        "['p'].x",
        "['p'].y[0]",
        "['p'].y[1][<flat index 0>]",
        "['p'].y[1][<flat index 1>].x",
        "['q']",
    ]
    short = lambda path, x: len(path) == 2
    pairs, _ = tree_util.tree_flatten_with_path(nested, short, is_leaf_takes_path=True)
    assert [tree_util.keystr(path) for path, _ in pairs] == ["['p'].x", "['p'].y", "['q']"]
    pairs, _ = tree_util.flatten_one_level_with_keys(nested["p"])
    assert [str(key) for key, _ in pairs] == [".x", ".y"]
