"""Donated arguments: results that take over the memory of arrays which the caller gives away.

While a program is built a donated input is as one of a loop's carries, and the result is its next
value: where the input is dead by then, the result is computed in its place. A call passes the
array itself if nobody else holds it, and a copy if somebody does.
"""

import ctypes
import sys
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.deleted import Deleted
from fnx.core.jaxpr import Jaxpr, Var
from fnx.lowering.build import fuse

Aliases = dict[int, int]  # number of a result: number of the input whose memory it has


def candidates(
    jaxpr: Jaxpr, donated: Sequence[int], refused: Collection[tuple[int, int]] = ()
) -> Aliases:
    """For each donated input a result of its type, if possible one that depends on it.

    `refused` pairs have been tried.
    """
    found: Aliases = {}
    outs = [
        v if type(v) is Var and v not in jaxpr.outs[:j] else None for j, v in enumerate(jaxpr.outs)
    ]
    for k in donated:
        x = jaxpr.inputs[k]
        if fuse.is_small(x.aval.shape):
            continue
        options = [
            j
            for j, v in enumerate(outs)
            if v is x
            or (v is not None and v not in jaxpr.inputs and x not in outs and _is_like(x, v))
        ]
        options = [j for j in options if j not in found and (j, k) not in refused]
        if options:
            near = _dependent(jaxpr, x)
            found[min(options, key=lambda j: (outs[j] not in near, j))] = k
    return found


def _dependent(jaxpr: Jaxpr, x: Var) -> set[Var]:
    found = {x}
    for e in jaxpr.eqns:
        if not found.isdisjoint([a for a in e.inputs if type(a) is Var]):
            found.update(e.outs)
    return found


def _is_like(a: Var, b: Var) -> bool:
    return (a.aval.shape, a.aval.dtype) == (b.aval.shape, b.aval.dtype)


# --- calls -------------------------------------------------------------------------------------


def calling(fast: Callable, aliases: Aliases, weak: Sequence[bool]) -> Callable:
    """Calls `fast`, which gives the other results, with arrays that it may overwrite."""
    pairs = sorted(aliases.items())

    def call(leaves: Sequence[Any]) -> Any:
        leaves = list(leaves)
        given = []
        for _, k in pairs:
            leaf = leaves[k]
            if type(leaf) is ConcreteArray and type(leaf._value) is Deleted:
                np.asarray(leaf._value)  # raises
            if type(leaf) is ConcreteArray and is_alone(leaf, leaves):
                given.append(leaf)
            elif isinstance(leaf, ConcreteArray | np.ndarray):
                value = leaf._value if type(leaf) is ConcreteArray else leaf
                own = leaf.weak_type if type(leaf) is ConcreteArray else False
                leaves[k] = ConcreteArray(np.array(value, order="C"), own)
            else:
                return NotImplemented
        values = [leaves[k]._value for _, k in pairs]
        try:
            outs = fast(leaves)
        except BaseException:  # nobody knows what they hold
            _delete(given)
            raise
        if outs is NotImplemented:
            return outs
        _delete(given)
        for (j, _), value in zip(pairs, values, strict=True):
            outs.insert(j, ConcreteArray(value, weak[j]))
        return outs

    return call


def _delete(leaves: Sequence[ConcreteArray]) -> None:
    for leaf in leaves:
        leaf.delete()


def is_alone(leaf: ConcreteArray, leaves: Sequence[Any]) -> bool:
    """Whether nobody but `leaf`, which is passed once, holds its numbers, nor saw them (`expose`)."""
    alone, alone_base = _counts()
    if sum([x is leaf for x in leaves]) > 1 or _references(leaf) > alone:
        return False
    if not leaf._value.flags.writeable:
        return False
    if leaf._value.base is None:
        return leaf._value.flags.owndata
    return _base_references(leaf) <= alone_base and _is_block(leaf._value.base)


def _references(leaf: ConcreteArray) -> int:
    value = leaf._value
    return sys.getrefcount(value)


def _base_references(leaf: ConcreteArray) -> int:
    base = leaf._value.base
    return sys.getrefcount(base)


@lru_cache(maxsize=1)
def _counts() -> tuple[int, int]:
    """The references to an array that is alone, and to what it is a view of, as Python counts them."""
    return _references(ConcreteArray(np.empty(1))), _base_references(ConcreteArray(np.empty(2)[:1]))


def _is_block(base: Any) -> bool:
    """Whether memory is the wrapper's own, and not some other library's."""
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes, is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
    return bool(is_valid(base, b"fnx"))
