"""Calls with donated arguments: results take over the memory of arrays which the caller gives away.

A call passes the array itself if nobody else holds it, and a copy if somebody does.
"""

import ctypes
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.buffer import Buffer, Deleted


def calling(
    fast: Callable,
    aliases: Mapping[int, int],
    replaced: Collection[int],
    moved: Mapping[int, int],
    weak: Sequence[bool],
) -> Callable:
    """Calls `fast`, which gives the other results, with arrays that it may overwrite.

    `aliases`: the number of a result, and that of the input whose memory it has. The inputs that are
    `replaced` are deleted after the call, whether or not their memory was taken, if nobody saw it.
    `moved` is as `aliases`, of results that are copied there after the call.
    """
    pairs = sorted(aliases.items())
    gone = sorted({*aliases.values(), *replaced})

    def call(leaves: Sequence[Any]) -> Any:
        given, leaves = [leaves[k] for k in gone], list(leaves)
        gone_after = [x for x in given if is_unseen(x, leaves)]
        over = []  # what is written over
        for leaf in given:
            if type(leaf) is ConcreteArray and isinstance(leaf._value, Buffer):
                if type(leaf._value) is Deleted:
                    np.asarray(leaf._value)  # raises
                return NotImplemented  # results are to lie where it does
        for _, k in pairs:
            leaf = leaves[k]
            if is_alone(leaf, leaves):
                over.append(leaf)
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
            _delete(over)
            raise
        if outs is NotImplemented:
            return outs
        free = {j: leaves[k]._value for j, k in moved.items() if is_alone(leaves[k], leaves)}
        _delete(gone_after)
        for (j, _), value in zip(pairs, values, strict=True):
            outs.insert(j, ConcreteArray(value, weak[j]))
        for j, value in free.items():
            np.copyto(value, outs[j]._value)
            outs[j] = ConcreteArray(value, weak[j])
        return outs

    return call


def _delete(leaves: Sequence[ConcreteArray]) -> None:
    for leaf in leaves:
        leaf.delete()


def is_unseen(leaf: Any, leaves: Sequence[Any]) -> bool:
    """Whether `leaf` is an array that is passed once, and was shown to nobody (`expose`)."""
    once = type(leaf) is ConcreteArray and sum([x is leaf for x in leaves]) == 1
    return once and leaf._value.flags.writeable


def is_alone(leaf: ConcreteArray, leaves: Sequence[Any]) -> bool:
    """Whether nobody but `leaf`, which is passed once, holds its numbers, nor saw them (`expose`)."""
    alone, alone_base = _counts()
    if not is_unseen(leaf, leaves) or _references(leaf) > alone:
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
