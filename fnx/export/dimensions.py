"""Sizes of axes that have names: polynomials of dimension variables, with integer coefficients."""

import ast
import operator
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from fnx.core.errors import InvalidValue, TypeMismatch

Monomial = tuple[str, ...]  # names in order, one for each factor; () is 1


class Dim:
    """A size such as 2*b + 1, for a program that is exported for all values of b.

    Numbers can be added, subtracted and multiplied; whether one is equal to another is known where
    their difference is a number.

    >>> b, n = fnx.export.symbolic_shape("b, 2*b + 1")
    >>> n, n - 2 * b, b == n
    (2*b + 1, 1, False)
    """

    __slots__ = ("scope", "terms")

    def __init__(self, terms: Mapping[Monomial, int], scope: "SymbolicScope"):
        self.terms = {m: c for m, c in sorted(terms.items(), key=_order) if c}
        self.scope = scope

    # --- arithmetic -----------------------------------------------------------------------------

    def _terms(self, other: Any) -> Mapping[Monomial, int] | None:
        if type(other) is Dim:
            if other.scope is not self.scope:
                raise InvalidValue(
                    f"the sizes {self} and {other} are of different scopes; expected one: pass scope= to "
                    "symbolic_shape, or name all shapes in one symbolic_args_specs"
                )
            return other.terms
        try:
            return {(): operator.index(other)}
        except TypeError:
            return None

    def __add__(self, other: Any) -> Any:
        terms = self._terms(other)
        if terms is None:
            return NotImplemented
        return _made(
            {m: self.terms.get(m, 0) + terms.get(m, 0) for m in {*self.terms, *terms}}, self
        )

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if self._terms(other) is None else self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __mul__(self, other: Any) -> Any:
        terms = self._terms(other)
        if terms is None:
            return NotImplemented
        found: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in terms.items():
                key = tuple(sorted(m + n))
                found[key] = found.get(key, 0) + c * d
        return _made(found, self)

    __rmul__ = __mul__

    # --- comparison -----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return type(other) is Dim and self.scope is other.scope and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def _positive(self, other: Any) -> bool:
        """Whether self - other is at least 0 for all sizes of at least 1; an error if it depends."""
        rest = self - other
        terms = rest.terms if type(rest) is Dim else {(): rest}
        least = sum(terms.values())
        slopes = [c for m, c in terms.items() if m]
        if all(c >= 0 for c in slopes) and least >= 0:
            return True
        if all(c <= 0 for c in slopes) and least < 0:
            return False
        raise InvalidValue(f"whether {self} >= {other} depends on the sizes; expected numbers")

    def __ge__(self, other: Any) -> bool:
        return self._positive(other)

    def __gt__(self, other: Any) -> bool:
        return self._positive(other + 1)

    def __le__(self, other: Any) -> bool:
        return not self._positive(other + 1)

    def __lt__(self, other: Any) -> bool:
        return not self._positive(other)

    def __index__(self) -> int:
        raise TypeMismatch(
            f"the size {self} where a number is needed; expected it in shapes of arguments of an exported "
            "function"
        )

    # --- values and text ------------------------------------------------------------------------

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number that it is for these values of the variables."""
        total = 0
        for monomial, c in self.terms.items():
            for name in monomial:
                c *= sizes[name]
            total += c
        return total

    @property
    def names(self) -> set[str]:
        return {name for m in self.terms for name in m}

    def __repr__(self) -> str:
        parts = []
        for m, c in self.terms.items():
            factors = [f"{n}^{m.count(n)}" if m.count(n) > 1 else n for n in sorted(set(m))]
            number = [str(abs(c))] if abs(c) != 1 or not m else []
            sign = " - " if c < 0 else " + "
            parts.append(sign + "*".join(number + factors))
        text = "".join(parts)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]


def _order(term: tuple[Monomial, int]) -> tuple:
    return -len(term[0]), term[0]


def _made(terms: Mapping[Monomial, int], like: Dim) -> Dim | int:
    dim = Dim(terms, like.scope)
    return dim if any(dim.terms) else dim.terms.get((), 0)


def number_at(size: Any, sizes: Mapping[str, int]) -> int:
    """A size, symbolic or not, for these values of the variables."""
    return size.at(sizes) if type(size) is Dim else size


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is a symbolic one.

    >>> [fnx.export.is_symbolic_dim(n) for n in fnx.export.symbolic_shape("b, 3")]
    [True, False]
    """
    return type(p) is Dim


# --- specifications ----------------------------------------------------------------------------


class SymbolicScope:
    """What dimension variables of a program belong to, and constraints on them: "b >= 8", "a == 2*b".

    >>> scope = fnx.export.SymbolicScope(["b >= 8"])
    >>> fnx.export.symbolic_shape("b, 3", scope=scope)
    (b, 3)
    """

    def __init__(self, constraints_str: Sequence[str] = ()):
        self.texts = tuple(constraints_str)
        self.constraints = [self._constraint(text) for text in self.texts]

    def _constraint(self, text: str) -> tuple[Any, str, Any]:
        for word in (">=", "<=", "=="):
            left, found, right = text.partition(word)
            if found:
                return parse_size(left, self), word, parse_size(right, self)
        raise InvalidValue(f"constraint {text!r} of sizes; expected two sizes with >=, <= or ==")

    def broken(self, sizes: Mapping[str, int]) -> list[str]:
        """The constraints that these values do not fulfil; those of variables that they lack hold."""
        compare = {">=": operator.ge, "<=": operator.le, "==": operator.eq}
        found = []
        for text, (a, word, b) in zip(self.texts, self.constraints, strict=True):
            known = all(x.names <= set(sizes) for x in (a, b) if type(x) is Dim)
            if known and not compare[word](number_at(a, sizes), number_at(b, sizes)):
                found.append(text)
        return found


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def parse_size(text: str, scope: SymbolicScope) -> Any:
    """A size of its text: sums and products of names and integers."""
    try:
        return _size(ast.parse(text.strip().replace("^", "**"), mode="eval").body, scope)
    except (SyntaxError, KeyError, AttributeError, RecursionError):
        raise InvalidValue(
            f"the size {text.strip()!r:.80}; expected names and integers with +, - and *, as in 2*b + 1"
        ) from None


def _size(node: Any, scope: SymbolicScope) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return Dim({(node.id,): 1}, scope)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_size(node.operand, scope)
    if isinstance(node.op, ast.Pow):
        total, power = 1, node.right.value
        for _ in range(power if power in range(1, 9) else {}[power]):
            total = _size(node.left, scope) * total
        return total
    return _OPERATORS[type(node.op)](_size(node.left, scope), _size(node.right, scope))


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple:
    """A shape with sizes that have names; "_" and "..." take those of `like`.

    ValueError for what is no shape, and for both `scope` and `constraints`.

    >>> fnx.export.symbolic_shape("b, 2*b + 1, 3")
    (b, 2*b + 1, 3)
    """
    if scope is not None and constraints:
        raise InvalidValue("both scope and constraints of symbolic_shape; expected one of them")
    scope = SymbolicScope(constraints) if scope is None else scope
    text = "..." if shape_spec is None else shape_spec.strip()
    text = text.removeprefix("(").removesuffix(")") if text.startswith("(") else text
    parts = [p.strip() for p in text.split(",")]
    parts = parts[:-1] if parts[-1] == "" else parts
    if "..." in parts:
        if like is None or parts[-1] != "..." or len(parts) - 1 > len(like):
            raise InvalidValue(
                f"the shape {shape_spec!r} has '...', which needs a longer shape `like`"
            )
        parts = parts[:-1] + ["_"] * (len(like) - len(parts) + 1)
    if like is not None and len(like) != len(parts):
        raise InvalidValue(f"the shape {shape_spec!r} of rank {len(parts)} is like {tuple(like)}")
    return tuple(_part(p, k, like, scope) for k, p in enumerate(parts))


def _part(text: str, k: int, like: Any, scope: SymbolicScope) -> Any:
    if text != "_":
        return parse_size(text, scope)
    if like is None or like[k] is None:
        raise InvalidValue(
            f"axis {k} of a symbolic shape is '_'; expected a shape `like` that has it"
        )
    return like[k]


# --- values of variables from shapes -----------------------------------------------------------


def solve(pairs: Iterable[tuple[Any, int]], scope: SymbolicScope | None) -> dict[str, int]:
    """The variables, of pairs of sizes and numbers; ValueError where they do not fit.

    Each variable is found in a size in which it stands alone, perhaps times a number, plus one.
    """
    sizes: dict[str, int] = {}
    left = [(s, n) for s, n in pairs if type(s) is Dim]
    while left:
        ready = [p for p in left if _unknown(p[0], sizes) is not None]
        if not ready:
            raise InvalidValue(
                f"the sizes {[s for s, _ in left]} do not tell their variables; expected arguments in "
                "whose shapes each variable stands alone once"
            )
        size, number = ready[0]
        left.remove(ready[0])
        name = _unknown(size, sizes)
        if name:
            sizes[name] = _solved(size, name, number, sizes)
        elif size.at(sizes) != number:
            raise InvalidValue(f"an axis of size {number}; expected {size} = {size.at(sizes)}")
    broken = scope.broken(sizes) if scope is not None else []
    if broken:
        raise InvalidValue(f"sizes {sizes} break the constraints {', '.join(broken)}")
    return sizes


def _unknown(size: Dim, sizes: Mapping[str, int]) -> str | None:
    """The one unknown variable of a size, in a term of its own; "" if all are known, None if neither."""
    names = size.names - set(sizes)
    if not names:
        return ""
    terms = [m for m in size.terms if set(m) & names]
    return terms[0][0] if len(terms) == 1 and len(terms[0]) == 1 else None


def _solved(size: Dim, name: str, number: int, sizes: Mapping[str, int]) -> int:
    value = Fraction(number - size.at({**sizes, name: 0}), size.terms[(name,)])
    if value.denominator != 1 or value < 1:
        raise InvalidValue(
            f"an axis of size {number}; expected {size} for an integer {name} of at least 1"
        )
    return int(value)
