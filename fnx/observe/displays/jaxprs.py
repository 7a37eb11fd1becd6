"""Jaxprs as coloured text: each equation knows the user's line that wrote it, and which part it is of."""

import linecache
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fnx.core import policy
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, subjaxprs
from fnx.core.source import Source
from fnx.observe.displays import markup

Tokens = list[tuple[str, str]]  # pairs of a style and a text


class Line(NamedTuple):
    """A line of a printed jaxpr; of an equation's first line, where it comes from."""

    tokens: Tokens
    source: Source | None = None
    adjoint: bool = False

    def plain(self) -> str:
        """Without colours."""
        return "".join([t for _, t in self.tokens])

    def html(self) -> str:
        """With colours; the operation is a link to the user's line."""
        return "".join([self._token(kind, t) for kind, t in self.tokens])

    def _token(self, kind: str, t: str) -> str:
        if kind == "op" and self.adjoint:
            kind = "op adj"
        made = markup.span(kind, t) if kind else markup.text(t)
        if self.source is None or not kind.startswith("op"):
            return made
        return link(self.source, made)


def place(source: Source) -> str:
    """A file, without its folders, and a line."""
    return source.short


def described(source: Source) -> str:
    """A place, what is written there, and what of it a derivative computes."""
    file, line = source.code.co_filename, source.line
    written = linecache.getline(file, line).strip()
    role = [source.role] if source.role else []
    return "\n".join(
        [f"{place(source)} ({source.code.co_name})", *role, *([written] if written else [])]
    )


def link(source: Source, inside: str, bare: str = "span") -> str:
    """Markup that leads to a place in the user's code where that is in a file, and names it anyhow."""
    said = markup.text(described(source))
    title, within = (
        (f' title="{said}"', inside) if bare == "span" else ("", f"<title>{said}</title>{inside}")
    )
    file = source.code.co_filename
    if not os.path.isabs(file) or not os.path.isfile(file):
        return f"<{bare}{title}>{within}</{bare}>"
    target = f"{Path(file).as_uri()}#L{source.line}"
    return f'<a href="{markup.text(target)}"{title}>{within}</a>'


def count(jaxpr: Jaxpr) -> int:
    """How many equations there are, those of nested jaxprs included."""
    return sum([1 + sum(map(count, subjaxprs(e.prim))) for e in jaxpr.eqns])


def adjoint_part(jaxpr: Jaxpr) -> set[int]:
    """The numbers of the equations that reverse mode made, and of those that use what these give."""
    found: set[int] = set()
    cotangents: set[Atom] = set()
    for k, e in enumerate(jaxpr.eqns):
        role = "" if e.source is None else e.source.role
        if role.startswith("the cotangent") or not cotangents.isdisjoint(e.inputs):
            found.add(k)
            cotangents.update(e.outs)
    return found


def _letters(k: int) -> str:
    text = ""
    while k >= 0:
        text = chr(ord("a") + k % 26) + text
        k = k // 26 - 1
    return text


class Names:
    """The names of a jaxpr's variables, as they are printed: a, b, c ... in order."""

    def __init__(self, jaxpr: Jaxpr):
        variables = [*jaxpr.inputs, *[v for e in jaxpr.eqns for v in e.outs]]
        self.names = {v: _letters(k) for k, v in enumerate(variables)}

    def __call__(self, atom: Atom) -> str:
        return repr(atom) if isinstance(atom, Literal) else self.names[atom]


def nested(eqn: Eqn) -> Iterator[tuple[str, Jaxpr]]:
    """The jaxprs that an equation carries, and the parameters that they are."""
    for key, value in eqn.prim.params().items():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Jaxpr):
                yield key, item


def _plain(eqn: Eqn) -> Iterator[str]:
    """The other parameters."""
    for key, value in eqn.prim.params().items():
        first = value[0] if isinstance(value, tuple) and value else value
        if not isinstance(first, Jaxpr) and key != "name":
            shown = str(getattr(value, "__name__", None) or value)
            most = policy.DISPLAYED_PARAMETER
            yield f"{key}={shown if len(shown) <= most else shown[:most] + '…'}"


class Printer:
    """Prints at most so many equations, nested ones included; `left` is how many more it may."""

    def __init__(self, most: int = policy.DISPLAYED_EQUATIONS):
        self.left = most

    def lines(self, jaxpr: Jaxpr) -> list[Line]:
        """All lines of a jaxpr."""
        names, adjoint = Names(jaxpr), adjoint_part(jaxpr)
        eqns = self._eqns(names, jaxpr, range(len(jaxpr.eqns)), adjoint)
        return [self._head(names, jaxpr), *eqns, self._outs(names, jaxpr)]

    def sides(self, jaxpr: Jaxpr, adjoint: set[int]) -> tuple[list[Line], list[Line]]:
        """The lines of what is not in a part, and of what is."""
        names, numbers = Names(jaxpr), range(len(jaxpr.eqns))
        most = self.left
        primal = self._eqns(names, jaxpr, [k for k in numbers if k not in adjoint], adjoint)
        self.left = most
        back = self._eqns(names, jaxpr, sorted(adjoint), adjoint)
        return [self._head(names, jaxpr), *primal], [*back, self._outs(names, jaxpr)]

    def _head(self, names: Names, jaxpr: Jaxpr) -> Line:
        consts, inputs = jaxpr.inputs[: jaxpr.consts], jaxpr.inputs[jaxpr.consts :]
        head: Tokens = [("", "{ lambda "), *self._binder(names, consts)]
        head += [("", " ; " if consts else "; "), *self._binder(names, inputs), ("", ". let")]
        return Line(head)

    def _eqns(
        self, names: Names, jaxpr: Jaxpr, numbers: Sequence[int], adjoint: set[int]
    ) -> list[Line]:
        made: list[Line] = []
        for n, k in enumerate(numbers):
            if self.left <= 0:
                made.append(Line([("warn", f"    … {len(numbers) - n:,} more equations")]))
                break
            found = self._eqn(names, jaxpr.eqns[k], k in adjoint)
            made += [self._indented(4, line) for line in found]
        return made

    def _outs(self, names: Names, jaxpr: Jaxpr) -> Line:
        outs: Tokens = [("", "  in (")]
        for k, a in enumerate(jaxpr.outs):
            outs += [("", ", ")] * bool(k) + [self._atom(names, a)]
        comma = "," if len(jaxpr.outs) == 1 else ""
        return Line([*outs, ("", f"{comma}) }}")])

    @staticmethod
    def _indented(by: int, line: Line) -> Line:
        return line._replace(tokens=[("", " " * by), *line.tokens])

    @staticmethod
    def _atom(names: Names, atom: Atom) -> tuple[str, str]:
        return ("number" if isinstance(atom, Literal) else "name"), names(atom)

    @staticmethod
    def _binder(names: Names, variables: Iterable[Var]) -> Tokens:
        tokens: Tokens = []
        for k, v in enumerate(variables):
            tokens += [("", " ")] * bool(k)
            tokens += [("name", names(v)), ("", ":"), ("type", v.aval.str_short())]
        return tokens

    def _eqn(self, names: Names, eqn: Eqn, adjoint: bool) -> list[Line]:
        self.left -= 1
        inputs: Tokens = [t for a in eqn.inputs for t in (("", " "), self._atom(names, a))]
        left = self._binder(names, eqn.outs) or [("", "_")]
        first: Tokens = [*left, ("", " = "), ("op", eqn.prim.name)]
        params, inner = list(_plain(eqn)), list(nested(eqn))
        if not inner:
            said: Tokens = [("soft", f"[{' '.join(params)}]")] if params else []
            return [Line([*first, *said, *inputs], eqn.source, adjoint)]
        made = [Line([*first, ("", "[")], eqn.source, adjoint)]
        for key, sub in inner:
            head, *rest = self.lines(sub)
            made.append(Line([("soft", f"  {key}="), *head.tokens]))
            made += [self._indented(2, line) for line in rest]
        made += [Line([("soft", f"  {p}")]) for p in params]
        return [*made, Line([("", "]"), *inputs])]


def listing(lines: Iterable[Line]) -> str:
    """Lines as markup."""
    return f"<pre>{chr(10).join([line.html() for line in lines])}</pre>"


def plain(lines: list[Line]) -> str:
    """Lines as text, each equation with its place in the user's code beside it."""
    texts = [line.plain() for line in lines]
    column = min(max(map(len, texts), default=0), 72)
    return "\n".join(
        [
            t if line.source is None else f"{t:<{column}}  # {place(line.source)}"
            for t, line in zip(texts, lines, strict=True)
        ]
    )


__all__ = ["Line", "Names", "Printer", "adjoint_part", "count", "listing", "nested", "plain"]
