"""fnx's dataclasses behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from typing import ClassVar

import pytest

from fnx.core import fast_dataclasses
from fnx.ops.base.permute import Transpose

KINDS = {"standard": dataclasses.dataclass, "ours": fast_dataclasses.dataclass}


@pytest.fixture(params=KINDS)
def dataclass(request):
    return KINDS[request.param]


def outcome(call):
    """What a call gives, or the type of what it raises."""
    try:
        return call()
    except Exception as error:
        return type(error)


def test_fields_defaults_and_order(dataclass):
    @dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        tags: list = dataclasses.field(default_factory=list, compare=False)
        hidden: str = dataclasses.field(default="h", repr=False)
        fixed: int = dataclasses.field(default=7, init=False)
        made: dict = dataclasses.field(default_factory=dict, init=False, compare=False)
        count: ClassVar[int] = 3

        def __post_init__(self):
            object.__setattr__(self, "hidden", self.hidden * 2)

    p = Point(1, tags=["a"])
    assert (p.x, p.y, p.tags, p.hidden, p.fixed, p.made) == (1, 2, ["a"], "hh", 7, {})
    assert Point(1).tags is not Point(1).tags
    assert repr(p).endswith("Point(x=1, y=2, tags=['a'], fixed=7, made={})")
    assert p == Point(1, 2) != Point(2)
    assert p != (1, 2, 7)
    assert hash(p) == hash(Point(1, 2)) == hash((1, 2, "hh", 7))
    assert [f.name for f in dataclasses.fields(Point)] == "x y tags hidden fixed made".split()
    assert dataclasses.replace(p, y=5).y == 5
    assert dataclasses.asdict(p)["x"] == 1
    assert list(inspect.signature(Point).parameters) == ["x", "y", "tags", "hidden"]
    assert Point.__match_args__ == ("x", "y", "tags", "hidden")
    assert Point.__doc__ == "A point."
    assert Point.__init__.__qualname__.endswith("Point.__init__")
    assert copy.deepcopy(p) == p
    for wrong in (Point, lambda: Point(1, 2, [], "", 5), lambda: Point(z=1)):
        assert outcome(wrong) is TypeError
    with pytest.raises(dataclasses.FrozenInstanceError, match="assign to field 'x'"):
        p.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError, match="delete field 'x'"):
        del p.x


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("eq", [True, False])
def test_equality_and_hash(dataclass, frozen, eq):
    @dataclass(frozen=frozen, eq=eq)
    class Plain:
        x: int

    @dataclass(frozen=frozen, eq=eq)
    class OwnEquality:
        x: int

        def __eq__(self, other):
            return True

    @dataclass(frozen=frozen, eq=eq)
    class OwnHash:
        x: int

        def __hash__(self):
            return 42

    assert (Plain(1) == Plain(1)) is eq
    assert (Plain.__eq__ is object.__eq__) is not eq
    hashes = {(True, True): hash((1,)), (False, True): TypeError}
    if eq:
        assert outcome(lambda: hash(Plain(1))) == hashes[frozen, eq]
    else:
        assert hash(a := Plain(1)) == object.__hash__(a)
    assert OwnEquality(1) == OwnEquality(2)
    assert outcome(lambda: hash(OwnEquality(1))) == (hash((1,)) if eq and frozen else TypeError)
    assert hash(OwnHash(1)) == 42


def test_inheritance(dataclass):
    @dataclass(frozen=True)
    class Base:
        x: int

        def __repr__(self):
            return "mine"

    @dataclass(frozen=True, repr=False)
    class Derived(Base):
        y: int = 3
        x: int = 1

    @dataclasses.dataclass(frozen=True)
    class Further(Derived):
        z: int = 0

    assert repr(Derived(1)) == "mine"
    assert Derived(1, 2).y == 2
    assert Base(1) != Derived(1)
    assert Further(1, 2, 3) == Further(1, 2, 3)
    assert outcome(lambda: setattr(Derived(1), "other", 1)) in (
        None,
        dataclasses.FrozenInstanceError,
    )
    assert outcome(lambda: setattr(Derived(1), "x", 1)) is dataclasses.FrozenInstanceError
    for decorate in KINDS.values():

        class Thawed(Base):
            z: int = 0

        assert outcome(lambda d=decorate, c=Thawed: d(c)) is TypeError

    @dataclass
    class Open:
        x: int

    Open(1).x = 2
    assert outcome(lambda: dataclass(frozen=True)(type("Shut", (Open,), {}))) is TypeError


def test_a_class_that_contains_itself_is_shown(dataclass):
    @dataclass
    class Node:
        next: object = None

    node = Node()
    node.next = node
    assert repr(node).endswith("Node(next=...)")


def test_constructors_of_ones_own_are_kept(dataclass):
    @dataclass(frozen=True, init=False)
    class Half:
        x: float

        def __init__(self, x):
            object.__setattr__(self, "x", x / 2)

    assert Half(4).x == 2


def test_primitives_are_pickled_and_compared():
    first = Transpose((1, 0))
    assert pickle.loads(pickle.dumps(first)) == first
    assert dataclasses.is_dataclass(first)
    assert "permutation=(1, 0)" in repr(first)


def test_what_is_not_known_is_refused():
    with pytest.raises(TypeError, match="slots"):

        @fast_dataclasses._record(slots=True)
        class Slots:
            x: int

    with pytest.raises(TypeError, match="keyword"):

        @fast_dataclasses._record
        class Keyword:
            x: int = dataclasses.field(kw_only=True)


def test_classes_that_add_no_fields(dataclass):
    @dataclass(frozen=True)
    class Base:
        x: int
        y: int = 2

    @dataclass(frozen=True)
    class Same(Base):
        """It only has another name."""

        y = 3  # without an annotation: the default stays

    class Between(Base):
        def __eq__(self, other):
            return "theirs"

    @dataclass(frozen=True)
    class Below(Between):
        pass

    @dataclass(frozen=True)
    class Checked(Base):
        def __post_init__(self):
            if self.x < 0:
                raise ValueError(self.x)

    @dataclass(frozen=True)
    class Alone:
        pass

    assert (Same(1).x, Same(1).y, Same.y) == (1, 2, 3)
    assert repr(Same(1)).endswith("Same(x=1, y=2)")
    assert Same(1) == Same(1) != Base(1)
    assert hash(Same(1)) == hash(Base(1))
    assert outcome(lambda: setattr(Same(1), "x", 2)) is dataclasses.FrozenInstanceError
    assert [f.name for f in dataclasses.fields(Same)] == ["x", "y"]
    assert dataclasses.replace(Same(1), y=5) == Same(1, 5)
    assert Same.__match_args__ == ("x", "y")
    assert (Below(1) == Below(1)) is True
    assert outcome(lambda: Checked(-1)) is ValueError
    assert Checked(1) == Checked(1)
    assert Alone() == Alone()
    assert pickle.loads(pickle.dumps(Transpose((0,)))) == Transpose((0,))
    assert (Below.__doc__ or "").startswith("Below")
