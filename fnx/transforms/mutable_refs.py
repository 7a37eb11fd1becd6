"""Mutable references: `new_ref`, read and written by indexing, inside loops and jit, too.

A Ref is a Python object that holds an array. Where a function that is being traced reads or writes one
that was made outside, tracing stops (`CapturedRefs`), and whoever traces does so again with the Ref's
array as an argument and a result more: programs stay functions of arrays.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, TypeMismatch, TypePromotionError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, Tracer, current
from fnx.interpreters.trace import CapturedRefs, Stage
from fnx.ops.elementwise.arithmetic import stop_gradient
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import zeros
from fnx.pytree import operations

__all__ = [
    "AbstractRef",
    "Ref",
    "addupdate",
    "empty_ref",
    "free_ref",
    "freeze",
    "get",
    "new_ref",
    "set",
    "swap",
]


def _stage() -> Stage | None:
    """The function that is being traced now, if one is."""
    it = current.get()
    while it is not None:
        if isinstance(it, Stage) and it.parent is None:
            return it
        it = it.parent  # type: ignore[assignment]
    return None


class RefGiven(TypeMismatch, ValueError):
    """A Ref was given where arrays are expected."""


class Ref:
    """A place for an array of one shape and dtype; made by `new_ref`.

    `ref[index]` reads, `ref[index] = x` writes, as `.at[index].set` does; `ref[...]` is the whole.

    >>> total = fnx.new_ref(jnp.zeros(2))
    >>> total[0] += 3.0
    >>> total[...]
    Array([3., 0.], dtype=float64)
    """

    __slots__ = ("__weakref__", "_aval", "_frozen", "_home", "_kind", "_made_in", "_value")
    __hash__ = object.__hash__

    def __init__(self, value: Array, kind: str | None = None):
        self._aval, self._kind = value.aval, kind
        self._home, self._value, self._frozen = _stage(), value, False
        self._made_in = current.get()

    aval: ShapedArray = property(lambda self: self._aval)  # type: ignore[assignment]
    shape = property(lambda self: self._aval.shape)
    dtype = property(lambda self: self._aval.dtype)
    ndim = property(lambda self: len(self._aval.shape))
    size = property(lambda self: self._aval.size)

    @property
    def value(self) -> Array:
        """The array that it holds now."""
        if self._frozen:
            raise InvalidValue("this Ref was frozen; expected one that is still in use")
        stage = _stage()
        if stage is self._home:
            return self._value
        return stage.refs.setdefault(self, self._value)  # type: ignore[union-attr]

    @value.setter
    def value(self, x: Array) -> None:
        if self._frozen:
            raise InvalidValue("this Ref was frozen; expected one that is still in use")
        if self._kind is not None:
            x = stop_gradient(x)
        stage = _stage()
        if stage is self._home:
            _check_owner(x, self._made_in)
            self._value = x
        else:
            _check_owner(x, stage)
            stage.refs[self] = x  # type: ignore[union-attr]

    def __getitem__(self, index: Any) -> Array:
        return self.value[index]  # type: ignore[index]

    def __setitem__(self, index: Any, x: Any) -> None:
        old = self.value
        x = as_array(x)
        if x.dtype != self.dtype and not x.aval.weak_type:
            raise TypePromotionError(
                f"a Ref of dtype {self.dtype} cannot hold values of dtype {x.dtype}"
            )
        self.value = old.at[index].set(x)  # type: ignore[attr-defined]

    @property
    def at(self) -> "_Views":
        """`ref.at[index]` is a part of the Ref, which is read and written as the whole is."""
        return _Views(self)

    def get(self, idx: Any = ()) -> Array:
        """The whole array, or a part."""
        return self[idx]

    def set(self, value: Any, idx: Any = ()) -> None:
        """Write the whole array, or a part."""
        self[idx] = value

    def swap(self, value: Any, idx: Any = ()) -> Array:
        """Write, and give what was there."""
        return swap(self, idx, value)

    def addupdate(self, value: Any, idx: Any = ()) -> None:
        """Add to the whole array, or to a part."""
        addupdate(self, idx, value)

    def __len__(self) -> int:
        return self.shape[0]

    def __jax_array__(self) -> Array:
        raise RefGiven("a Ref is no array; expected ref[...], which reads it")

    def __repr__(self) -> str:
        held = "frozen" if self._frozen else repr(self._value)
        return f"Ref({self._aval.str_short()}, {held})"


@dataclass(frozen=True)
class AbstractRef:
    """The type of a Ref: that of the array which it holds.

    >>> fnx.typeof(fnx.new_ref(jnp.zeros(2)))
    Ref{float64[2]}
    """

    inner_aval: ShapedArray

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: self.inner_aval.size)

    def str_short(self, *_: Any, **__: Any) -> str:
        """Short: dtype and shape in braces."""
        return f"Ref{{{self.inner_aval.str_short()}}}"

    def __repr__(self) -> str:
        aval = self.inner_aval
        return f"Ref{{{dtypes.NAME[aval.dtype]}[{','.join(map(str, aval.shape))}]}}"


class _Views:
    """What `ref.at` is: `ref.at[index]` is a part."""

    def __init__(self, ref: "Ref | RefView"):
        self._ref = ref

    def __getitem__(self, index: Any) -> "RefView":
        return RefView(self._ref, index)


@operations.register_pytree_node_class
class RefView:
    """A part of a Ref: `ref.at[1:3][0] = x` writes `ref[1]`. It is a pytree of the Ref and of arrays
    that index it.

    >>> ref = fnx.new_ref(jnp.zeros(3))
    >>> part = ref.at[1:]
    >>> part[0] = 5.0
    >>> ref[...], part[...]
    (Array([0., 5., 0.], dtype=float64), Array([5., 0.], dtype=float64))
    """

    def __init__(self, ref: "Ref | RefView", index: Any):
        self._ref, self._index = ref, index

    def tree_flatten(self) -> tuple[tuple, tuple]:
        parts = self._index if isinstance(self._index, tuple) else (self._index,)
        arrays = [isinstance(p, (Array, np.ndarray)) for p in parts]
        fixed = [None if a else _hashable(p) for p, a in zip(parts, arrays)]
        return (self._ref, *(p for p, a in zip(parts, arrays) if a)), (*zip(arrays, fixed),)

    @classmethod
    def tree_unflatten(cls, parts: tuple, children: tuple) -> "RefView":
        ref, *arrays = children
        its = iter(arrays)
        return cls(ref, tuple([next(its) if a else _index_of(p) for a, p in parts]))

    aval = property(lambda self: self[...].aval)
    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.shape))
    at = property(_Views)

    def __getitem__(self, index: Any) -> Array:
        return self._ref[self._index][index]  # type: ignore[index]

    def __setitem__(self, index: Any, x: Any) -> None:
        self._ref[self._index] = self[...].at[index].set(x)  # type: ignore[attr-defined]

    def get(self) -> Array:
        """The whole part."""
        return self[...]

    def set(self, x: Any) -> None:
        """Write the whole part."""
        self[...] = x


def _hashable(p: Any) -> Any:
    """A part of an index, as a treedef may hold it: slices have no hash."""
    return (p.start, p.stop, p.step) if isinstance(p, slice) else p


def _is_view(x: Any) -> bool:
    return type(x) is RefView


def _index_of(p: Any) -> Any:
    return slice(*p) if type(p) is tuple else p


def _check_owner(x: Array, place: Interpreter | None) -> None:
    """Raise for a value of a transformation that will have ended while `place` still reads the Ref."""
    if not isinstance(x, Tracer):
        return
    it = place
    while it is not None and it is not x.owner:
        it = it.outer if isinstance(it, Stage) and it.parent is None else it.parent
    if it is None:
        raise InvalidValue(
            f"a value of {x.owner.what} was written to a Ref that was made outside of it; expected a "
            "Ref that is made inside, or results that are returned"
        )


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A mutable reference to an array.

    What is read from one of the kind "no_grad_no_remat" is a constant to derivatives. ValueError for any
    other kind.

    >>> total = fnx.new_ref(0.0)
    >>> def add(x):
    ...     total[...] += x
    >>> add(2.0), add(3.0)
    (None, None)
    >>> float(total[...])
    5.0
    """
    del memory_space
    if kind not in (None, "no_grad_no_remat"):
        raise InvalidValue(f"new_ref of kind {kind!r}; expected None or 'no_grad_no_remat'")
    x = as_array(init_val)
    x = x if kind is None else stop_gradient(x)
    return Ref(ConvertElementType(x.dtype)(x) if x.aval.weak_type else x, kind)


def ref_like(ref: Ref, value: Any) -> Ref:
    """Another Ref of the same kind."""
    return new_ref(value, kind=ref._kind)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A mutable reference to an array of a shape and dtype, which holds zeros.

    >>> fnx.empty_ref(fnx.ShapeDtypeStruct((2,), float))[...]
    Array([0., 0.], dtype=float64)
    """
    from fnx.pytree.flatten_fun import aval_like

    return new_ref(zeros(aval_like(ty).strong()), memory_space=memory_space)


def freeze(ref: Ref) -> Array:
    """The array that a Ref holds, at the end of its life.

    >>> ref = fnx.new_ref(jnp.zeros(2))
    >>> ref[1] = 5.0
    >>> fnx.freeze(ref)
    Array([0., 5.], dtype=float64)
    """
    x = ref.value
    ref._frozen = True
    return x


def free_ref(ref: Ref) -> None:
    """End the life of a Ref: who reads or writes it afterwards gets an error.

    >>> ref = fnx.new_ref(0.0)
    >>> fnx.free_ref(ref)
    """
    freeze(ref)


def get(ref: Ref, idx: Any = ...) -> Array:
    """`ref[idx]`."""
    return ref[... if idx is None else idx]


def set(ref: Ref, idx: Any, value: Any) -> None:
    """`ref[idx] = value`."""
    ref[... if idx is None else idx] = value


def swap(ref: Ref, idx: Any, value: Any) -> Array:
    """What was at `idx`, which holds `value` now."""
    old = get(ref, idx)
    set(ref, idx, value)
    return old


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """`ref[idx] += x`."""
    set(ref, idx, get(ref, idx) + x)


# --- for those who trace ---------------------------------------------------------------------------


@contextmanager
def rebound(refs: Sequence[Ref], values: Sequence[Array]) -> Iterator[Callable[[], list[Array]]]:
    """Within it the Refs hold `values` and belong to the function that is traced now."""
    before = [(r._value, r._home, r._made_in) for r in refs]
    stage = _stage()
    for r, x in zip(refs, values, strict=True):
        r._value, r._home, r._made_in = x, stage, current.get()
    try:
        yield lambda: [r._value for r in refs]
    finally:
        for r, state in zip(refs, before, strict=True):
            r._value, r._home, r._made_in = state


def carrying(fun: Callable, refs: Sequence[Ref]) -> Callable:
    """`(values, *args) -> (values, fun(*args))`, where `values` are what the Refs hold."""

    def carried(values: Sequence[Array], *args: Any, **kwargs: Any) -> tuple[list[Array], Any]:
        with rebound(refs, values) as last:
            try:
                out = fun(*args, **kwargs)
            except CapturedRefs as found:
                if any(r in refs for r in found.refs):  # a trace within `fun` does not hand them on
                    raise InvalidValue(str(found)) from None
                raise
            return last(), out

    carried.__name__ = getattr(fun, "__name__", type(fun).__name__)
    return carried


def check_distinct(refs: Sequence[Ref], what: str) -> None:
    """Raise for a Ref that a function would know by two names."""
    if len({id(r) for r in refs}) < len(refs):
        raise InvalidValue(
            f"{what} gets one mutable reference twice, as two arguments or as one that it closes over, "
            "too; expected each once"
        )


def taken_out(
    tree: Any, what: str, rows: bool = False
) -> tuple[list[Ref], list, Callable[[Sequence, Sequence], Any]]:
    """The Refs of a pytree, its other leaves, and what makes a tree of such two again.

    Where a function gets `rows` of them, parts of Refs are refused.
    """
    if rows and any([isinstance(x, RefView) for x in operations.tree_leaves(tree, _is_view)]):
        raise RefGiven(
            f"{what} gets a part of a mutable reference, ref.at[...], along whose axes it would go; "
            "expected the whole Ref, or the function to close over the part"
        )
    leaves, treedef = operations.tree_flatten(tree)
    held = [type(x) is Ref for x in leaves]
    refs = [x for x, h in zip(leaves, held) if h]
    check_distinct(refs, what)

    def joined(refs: Sequence, others: Sequence) -> Any:
        its = iter(others), iter(refs)
        return operations.tree_unflatten(treedef, [next(its[h]) for h in held])

    return refs, [x for x, h in zip(leaves, held) if not h], joined


def write(refs: Sequence[Ref], values: Sequence[Array]) -> None:
    """Let the Refs hold values."""
    for r, x in zip(refs, values, strict=True):
        r.value = x


def still_there(found: CapturedRefs) -> tuple[Ref, ...]:
    """The Refs that a trace found in use; InvalidValue for those of a trace that has ended."""
    if any(r._home is not None and r._home.ended for r in found.refs):
        raise InvalidValue(str(found)) from None
    return found.refs


def through_refs(fun: Callable, args: tuple, kwargs: dict, transform: Callable, what: str) -> Any:
    """Results of `transform(fun)` where `fun` gets mutable references, or uses some from outside.

    What is transformed is a function of arrays, which gets and returns what they hold.
    """
    refs, others, joined = taken_out((args, kwargs), what)
    outside: tuple[Ref, ...] = ()
    while True:
        carried = carrying(fun, outside)

        def pure(
            values: Sequence, held: Sequence, others: Sequence, carried: Callable = carried
        ) -> Any:
            given = list(map(ref_like, refs, held))
            positional, named = joined(given, others)
            values, out = carried(values, *positional, **named)
            return values, [r.value for r in given], out

        pure.__name__ = getattr(fun, "__name__", type(fun).__name__)
        held = [[r.value for r in rs] for rs in (outside, refs)]
        try:
            values, ends, out = transform(pure)(*held, others)
        except CapturedRefs as found:
            outside = (*outside, *still_there(found))
            continue
        check_distinct([*outside, *refs], what)
        write(outside, values)
        write(refs, ends)
        return out
