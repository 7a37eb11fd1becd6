"""Dataclasses that take a quarter of the time to define: a process defines over a hundred.

The standard library writes and compiles a text for each method of each class. Here one text has those
that are called often, and the others are the same functions for all classes.
"""

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from fnx.core.threads.fork_safety import PATIENCE, fork_safe


def _record(cls: type | None = None, /, **options: bool) -> Any:
    """`dataclasses.dataclass` with the options `frozen`, `eq`, `repr` and `init`."""
    if cls is None:
        return lambda cls: _made(cls, **options)
    return _made(cls, **options)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _record


def _made(
    cls: type, frozen: bool = False, eq: bool = True, repr: bool = True, init: bool = True
) -> type:
    own = cls.__dict__
    if not own.get("__doc__"):
        cls.__doc__ = cls.__name__  # or its signature is found out, and printed
    if frozen and eq and repr and init and _is_as_its_base(cls):
        return cls
    fields = _fields(cls, frozen)
    params: Any = cls.__dataclass_params__  # type: ignore[attr-defined]
    params.init, params.repr, params.eq, params.frozen = init, repr, eq, frozen
    known: dict[str, Any] = {"_put": object.__setattr__, "_missing": MISSING}
    known["__name__"] = cls.__module__
    text = ""
    if init and "__init__" not in own:
        text += _constructor(cls, fields, frozen, known)
    if repr and "__repr__" not in own:
        _set(cls, "__repr__", _representation([f.name for f in fields if f.repr]))
    if eq:
        compared = [f.name for f in fields if f.compare]
        has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
        if not has_hash and frozen:
            text += f"def __hash__(self):\n return hash({_values('self', compared)})\n"
        elif not has_hash:
            cls.__hash__ = None  # type: ignore[assignment]
        if "__eq__" not in own:
            mine, theirs = _values("self", compared), _values("other", compared)
            text += _EQUAL.format(mine, theirs)
    exec(text, known)
    for name in ("__init__", "__hash__", "__eq__"):
        if name in known:
            _set(cls, name, known[name])
    if "__init__" in known:
        known["__init__"].__annotations__ = {f.name: f.type for f in fields if f.init}
    if frozen:
        for name, method in (("__setattr__", _no_assignment), ("__delattr__", _no_deletion)):
            if name in own:
                raise TypeError(f"cannot overwrite attribute {name} in class {cls.__name__}")
            setattr(cls, name, method)
    return cls


_METHODS = frozenset(["__init__", "__repr__", "__eq__", "__hash__", "__post_init__", "__setattr__"])


def _is_as_its_base(cls: type) -> bool:
    """Whether a frozen class has no more fields or methods than the dataclass that it inherits from."""
    if "__annotations__" in cls.__dict__:
        return False
    while _METHODS.isdisjoint(cls.__dict__) and len(cls.__bases__) == 1:
        cls = cls.__bases__[0]
        params: Any = cls.__dict__.get("__dataclass_params__")
        if params is not None:
            return all([params.frozen, params.eq, params.repr, params.init])
    return False


def _fields(cls: type, frozen: bool) -> tuple:
    """The fields of a class, all else of a dataclass left out; TypeError where it cannot be one."""
    with _defining:
        found = [base.__dict__.get("__dataclass_params__") for base in cls.__mro__[1:]]
        bases: list[Any] = [params for params in found if params is not None]
        if any([params.frozen != frozen for params in bases]):
            raise TypeError(f"{cls.__name__}: one of its bases and it is frozen, the other is not")
        # Methods that forbid assignment would be written anew for each class that inherits them.
        for params in bases:
            params.frozen = False
        try:
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        finally:
            for params in bases:
                params.frozen = frozen
    return dataclasses.fields(cls)


_defining = fork_safe(threading.RLock(), PATIENCE)


_EQUAL = """def __eq__(self, other):
 if other.__class__ is self.__class__:
  return {} == {}
 return NotImplemented
"""


def _values(thing: str, names: list[str]) -> str:
    """The text of a tuple of the values of fields."""
    return f"({''.join([f'{thing}.{name}, ' for name in names])})"


def _set(cls: type, name: str, method: Any) -> None:
    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    setattr(cls, name, method)


def _constructor(cls: type, fields: tuple, frozen: bool, known: dict[str, Any]) -> str:
    """The text of `__init__`; what it refers to is added to `known`."""
    arguments, lines = ["self"], []
    for f in fields:
        if f.kw_only:
            raise TypeError(f"{cls.__name__}.{f.name}: no keywords-only fields here")
        value, made = f.name, f"_make_{f.name}"
        if f.default_factory is not MISSING:
            known[made] = f.default_factory
            value = f"{made}() if {f.name} is _missing else {f.name}" if f.init else f"{made}()"
        elif not f.init:
            continue  # the default is the class's
        if f.init:
            default = f.default_factory is not MISSING and "_missing"
            if f.default is not MISSING:
                default = f"_default_{f.name}"
                known[default] = f.default
            arguments.append(f"{f.name}={default}" if default else f.name)
        lines.append(f"_put(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return f"def __init__({', '.join(arguments)}):\n " + "\n ".join(lines or ["pass"]) + "\n"


def _representation(names: list[str]) -> Callable:
    @recursive_repr()
    def show(self: Any) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({shown})"

    return show


def _no_assignment(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
