"""Static arguments: which arguments of a function are part of the key of its compiled program."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import kind_of
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.core.source import brief
from fnx.pytree import operations
from fnx.pytree.flatten_fun import name_of, signature_of

# What is static in one call: (number or name, type, value), so that 1, 1.0 and True are different.
Fixed = tuple[tuple[int | str, type, Any], ...]


def integers(x: int | Sequence[int] | None, what: str) -> tuple[int, ...]:
    """One or several numbers of arguments, as a tuple."""
    found = () if x is None else (x,) if isinstance(x, (int, np.integer)) else tuple(x)
    for k in found:
        if not isinstance(k, (int, np.integer)):
            raise TypeMismatch(f"{what} must be an integer or several, got {k!r}")
    return tuple(map(int, found))


def strings(x: str | Iterable[str] | None, what: str) -> tuple[str, ...]:
    """One or several names of arguments, as a tuple."""
    found = () if x is None else (x,) if isinstance(x, str) else tuple(x)
    for name in found:
        if not isinstance(name, str):
            raise TypeMismatch(f"{what} must be a string or several, got {name!r}")
    return found


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class Static:
    """Which arguments of a function are static (or donated, `what`), by number and by name."""

    def __init__(self, fun: Callable, argnums: Any, argnames: Any, what: str = "static"):
        self.name, self.what = name_of(fun), what
        self.numbers = integers(argnums, f"{what}_argnums")
        self.names = strings(argnames, f"{what}_argnames")
        signature = signature_of(fun) if self.numbers or self.names else None
        if signature is not None:
            both = argnums is not None and argnames is not None
            self._complete(list(signature.parameters.values()), both)
        self.any = bool(self.numbers or self.names)
        self.key = tuple(self.numbers), tuple(self.names)
        self._plans: dict[
            tuple, Callable
        ] = {}  # by the number of arguments and the names of others

    def _complete(self, parameters: list, given_both: bool) -> None:
        """Numbers for names and names for numbers, as in the signature, unless both are given."""
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters)
        keywords = any(p.kind == p.VAR_KEYWORD for p in parameters)
        known = {p.name for p in parameters}
        for n in self.names:
            if n not in known and not keywords:
                raise InvalidValue(
                    f"{self.what}_argnames of {self.name} names {n!r}, which is not one of its "
                    f"parameters ({', '.join(sorted(known))})"
                )
        numbers = []
        for k in self.numbers:
            if not variadic and not -len(positional) <= k < len(positional):
                raise InvalidValue(
                    f"{self.what}_argnums={k} is out of range: {self.name} has {len(positional)} "
                    "positional parameters"
                )
            numbers.append(k + len(positional) if k < 0 and not variadic else k)
        for p in parameters:
            if p.name in self.names and p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL):
                raise InvalidValue(
                    f"{self.what}_argnames of {self.name} names {p.name!r}, which is passed by position "
                    f"alone; expected {self.what}_argnums"
                )
        if given_both:  # as they are: the user knows how the function is called
            self.numbers = tuple(dict.fromkeys(numbers))
            return
        byname = [k for k, p in enumerate(positional) if p.name in self.names]
        names = [
            positional[k].name
            for k in numbers
            if 0 <= k < len(positional) and positional[k].kind is not positional[k].POSITIONAL_ONLY
        ]
        self.numbers = tuple(dict.fromkeys([*numbers, *byname]))
        self.names = tuple(dict.fromkeys([*self.names, *names]))

    def split(self, args: tuple, kwargs: dict) -> tuple[tuple, dict, Fixed]:
        """The dynamic arguments by position and by name, and the static ones."""
        shape = (len(args), *kwargs)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = self._plan(len(args), list(kwargs))
        found = plan(args, kwargs)
        try:
            hash(found[2])
        except TypeError as error:
            raise self._unhashable(found[2]) from error
        return found

    def _plan(self, count: int, names: list[str]) -> Callable:
        """`split` for calls with so many arguments and these names, as code: it runs at each call."""
        places = {k + count if k < 0 else k for k in self.numbers}
        static: list[tuple[int | str, str]]
        static = [(k, f"args[{k}]") for k in sorted(places) if k < count]
        static += [(n, f"kwargs[{n!r}]") for n in sorted(self.names) if n in names]
        rest = "".join(f"args[{k}], " for k in range(count) if k not in places)
        named = ", ".join(f"{n!r}: kwargs[{n!r}]" for n in names if n not in self.names)
        fixed = "".join(f"({where!r}, type({x}), {x}), " for where, x in static)
        return eval(f"lambda args, kwargs: (({rest}), {{{named}}}, ({fixed}))")

    def _unhashable(self, fixed: Fixed) -> InvalidValue:
        where, _, value = next(f for f in fixed if not _is_hashable(f[2]))
        if isinstance(value, Tracer):
            return InvalidValue(
                f"the static argument {where!r} of {self.name} is a traced value, "
                f"{kind_of(value)}: {value!r}. Static "
                "arguments are part of the key of the compiled program, so their values must be known: "
                f"mark the argument that it comes from static, too, or make it dynamic."
            )
        return InvalidValue(
            f"the static argument {where!r} of {self.name} is not hashable: {kind_of(value)}: "
            f"{brief(value, 80)}. Static arguments are part of the key of the compiled program: use a "
            "tuple instead of a list, or make it dynamic."
        )

    def among(self, args: tuple, kwargs: dict) -> list:
        """The arguments that these numbers and names mean, of all those of a call."""
        places = {k % len(args) for k in self.numbers if -len(args) <= k < len(args)}
        named = [kwargs[n] for n in self.names if n in kwargs]
        return [args[k] for k in sorted(places)] + named

    @staticmethod
    def join(args: tuple, kwargs: dict, fixed: Fixed) -> tuple[tuple, dict]:
        """The arguments of the function: the inverse of `split`."""
        if not fixed:
            return args, kwargs
        places = {w: v for w, _, v in fixed}
        rest = iter(args)
        total = len(args) + sum(isinstance(w, int) for w in places)
        full = [places[k] if k in places else next(rest) for k in range(total)]
        return tuple(full), kwargs | {w: v for w, v in places.items() if isinstance(w, str)}


class _Leaf(int):
    """The number of a leaf, which is not an argument's value."""

    def __eq__(self, other: object) -> bool:
        return type(other) is _Leaf and int(self) == int(other)

    __hash__ = int.__hash__


def donated_leaves(
    donated: Static, static: Static, treedef: Any, fixed: Fixed, without: Collection[int]
) -> tuple[int, ...]:
    """The numbers of the leaves that are donated, among those that have values."""
    if not donated.any:
        return ()
    leaves = range(treedef.num_leaves)
    args, kwargs = operations.tree_unflatten(treedef, [_Leaf(k) for k in leaves])
    given = donated.among(*static.join(args, kwargs, fixed))
    chosen = {x for x in operations.tree_leaves(given) if type(x) is _Leaf}
    kept = [k for k in leaves if k not in without]
    return tuple([n for n, k in enumerate(kept) if _Leaf(k) in chosen])
