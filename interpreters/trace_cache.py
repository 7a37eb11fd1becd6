"""Traces that are remembered with the function that was traced.

A function that is used again, on the same types and with the same surroundings (the values of its globals
and of what it closed over), is not traced again; nor is an object that is one by its identity, whose
attributes are what they were. What is remembered of a function lies on it, so that both can go together:
surroundings may lead back to the function.
"""

import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from opcode import opmap
from types import CodeType, FunctionType
from typing import Any

from fnx.core import policy

_NAME = "__fnx_traces__"


class _Traces:
    """What is remembered of one function."""

    def __init__(self, owner: Callable):
        self.owner = weakref.ref(owner)
        self.time = _cleared[0]
        self.found: dict[Hashable, tuple[list, Any]] = {}

    def __reduce__(self) -> tuple:
        return _nothing, ()  # in a function that is pickled by value, or copied


def _nothing() -> None:
    return None


_cleared = [0]  # how often all was forgotten
_of_objects: "weakref.WeakKeyDictionary[Callable, weakref.ref[_Traces]]" = (
    weakref.WeakKeyDictionary()
)
_recent: deque[_Traces] = deque(maxlen=policy.REMEMBERED_OBJECTS)  # they lie on nothing: these live


def find(owner: Callable, key: Hashable) -> tuple[list | None, Any]:
    """The surroundings of a function now, None where nothing is remembered; and what `keep` was told."""
    if not _is_remembered(owner):
        return None, None
    around, traces = _surroundings(owner), _traces(owner)
    before, made = traces.found.get(key, (None, None)) if traces else (None, None)
    return around, made if before is not None and _same(before, around) else None


def keep(owner: Callable, key: Hashable, around: list | None, made: Any) -> None:
    """Remember what was made of a function in these surroundings."""
    if around is None:
        return
    traces = _traces(owner)
    if traces is None:
        traces = _Traces(owner)
        if type(owner) is FunctionType:
            owner.__dict__[_NAME] = traces
        else:
            _of_objects[owner] = weakref.ref(traces)
            _recent.append(traces)
    elif len(traces.found) >= policy.REMEMBERED_TRACES:
        traces.found.clear()
    traces.found[key] = around, made


def forget(owner: Callable | None = None) -> None:
    """Forget what was made of a function, or of all."""
    if owner is None:
        _cleared[0] += 1
    elif (traces := _traces(owner)) is not None:
        traces.found.clear()


def _traces(owner: Callable) -> _Traces | None:
    if type(owner) is FunctionType:
        found = owner.__dict__.get(_NAME)  # functools.wraps copies that of another function
    else:
        ref = _of_objects.get(owner) if _is_remembered(owner) else None
        found = None if ref is None else ref()
    if found is None or found.owner() is not owner or found.time != _cleared[0]:
        return None
    return found


def _is_remembered(owner: Callable) -> bool:
    kind = type(owner)
    return kind is FunctionType or (
        kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
        and hasattr(owner, "__dict__") and hasattr(owner, "__weakref__")
    )  # fmt: skip


def _surroundings(owner: Callable) -> list:
    """The objects that a function's free names stand for now; an object's attributes, and theirs."""
    if type(owner) is FunctionType:
        return _free(owner)
    found = [None if x is owner else x for x in vars(owner).values()]
    return [*found, *(x for f in found if type(f) is FunctionType for x in _free(f))]


def _assigned(code: CodeType) -> frozenset[str]:
    """The free names that a function itself gives values, as one does that counts its traces."""
    operations = code.co_code[::2]
    if not (_STORE_GLOBAL in operations or (code.co_freevars and _STORE_DEREF in operations)):
        return frozenset()
    if code not in _known:
        _known[code] = frozenset(_stored(code, operations))
    return _known[code]


def _stored(code: CodeType, operations: bytes) -> Iterator[str]:
    # Variables of its own that others close over have the numbers before those of outer functions.
    own, above = len({*code.co_varnames, *code.co_cellvars}), 0
    for operation, low in zip(operations, code.co_code[1::2]):
        number = above << 8 | low
        above = number if operation == _EXTENDED_ARG else 0
        if operation == _STORE_GLOBAL:
            yield code.co_names[number]
        elif operation == _STORE_DEREF and number >= own:
            yield code.co_freevars[number - own]


_STORE_GLOBAL, _STORE_DEREF = opmap["STORE_GLOBAL"], opmap["STORE_DEREF"]
_EXTENDED_ARG = opmap["EXTENDED_ARG"]
_known: "weakref.WeakKeyDictionary[CodeType, frozenset[str]]" = weakref.WeakKeyDictionary()


def _free(fun: FunctionType) -> list:
    """The objects that a function's free names stand for now, but for itself and what it assigns."""
    code, assigned = fun.__code__, _assigned(fun.__code__)
    found = [fun.__globals__.get(n) for n in code.co_names if n not in assigned]
    for name, cell in zip(code.co_freevars, fun.__closure__ or ()):
        try:
            found.append(None if name in assigned else cell.cell_contents)
        except ValueError:  # not filled yet
            found.append(None)
    return [None if x is fun else x for x in found]


def _same(a: list, b: list) -> bool:
    return len(a) == len(b) and all([x is y for x, y in zip(a, b)])
