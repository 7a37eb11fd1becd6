"""What scalar expressions are made of: their nodes, what they read, the same with parts replaced."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

from fnx.core import scalar
from fnx.core.scalar import Expr

from .kernel import Buffer

T = TypeVar("T")


def nodes(roots: Iterable[Expr], known: Container[Expr] = ()) -> Iterator[Expr]:
    """All nodes of expressions, each once; those below `known` ones are left out."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in seen and e not in known:
            seen.add(e)
            yield e
            stack.extend(e.args)


def depends_on(roots: Iterable[Expr], leaves: Iterable[Expr], stop: Expr | None = None) -> bool:
    """Whether a node of `leaves` is reached, other than through `stop`."""
    wanted, seen = set(leaves), {stop}
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        if e in wanted:
            return True
        seen.add(e)
        stack.extend(e.args)
    return False


# --- from the leaves up ------------------------------------------------------------------------


def _upwards(root: Expr, known: dict[Expr, T], of: Callable[[Expr], T]) -> T:
    """`known[root]`; what is not known yet is told by `of`, operands first."""
    stack = [root]
    while stack:
        e = stack[-1]
        if e not in known:
            below = [a for a in e.args if a not in known]
            if below:
                stack += below
                continue
            known[e] = of(e)
        stack.pop()
    return known[root]


def ordered(roots: Iterable[Expr]) -> list[Expr]:
    """All nodes of expressions, each once, after its operands."""
    known: dict[Expr, None] = {}
    for root in roots:
        _upwards(root, known, lambda e: None)
    return list(known)


_NONE: frozenset[Buffer] = frozenset()


def buffers_read(roots: Iterable[Expr]) -> frozenset[Buffer]:
    """The buffers from which the expressions load; each node remembers those of what is below it."""
    return _union([_reads(root) for root in roots])


def loads(roots: Iterable[Expr], found: dict[Buffer, None]) -> None:
    """Enter the buffers from which the expressions load in the order in which a walk meets them."""
    stack = list(roots)
    while stack:
        e = stack.pop()
        below = _reads(e)
        if not below or below <= found.keys():
            continue
        if e.op == "load":
            found[e.attr] = None
        stack.extend(e.args)


def _reads(root: Expr) -> frozenset[Buffer]:
    if root.reads is not None:
        return root.reads
    stack = [root]
    while stack:
        e = stack[-1]
        if e.reads is None:
            below = [a for a in e.args if a.reads is None]
            if below:
                stack += below
                continue
            found = _union([a.reads for a in e.args]) if e.args else _NONE  # type: ignore[misc]
            e.reads = found | {e.attr} if e.op == "load" else found
        stack.pop()
    return root.reads  # type: ignore[return-value]


def _union(parts: Iterable[frozenset[Buffer]]) -> frozenset[Buffer]:
    """The same object as one of the parts wherever it can be."""
    found = _NONE
    for part in parts:
        if part is not found and not part <= found:
            found = part if found <= part else found | part
    return found


def reads_memory(e: Expr) -> bool:
    """Whether an expression loads."""
    return bool(_reads(e))


def depth(root: Expr, known: dict[Expr, int], free: Container[str] = ()) -> int:
    """How many operations, but for `free` ones, follow one another; `known` remembers."""

    def of(e: Expr) -> int:
        return max([known[a] + (e.op not in free) for a in e.args], default=0)

    return _upwards(root, known, of)


def replacing(names: dict[Expr, Expr]) -> Callable[[Expr], Expr]:
    """Expressions with some nodes replaced."""
    done = dict(names)

    def anew(e: Expr) -> Expr:
        args = tuple([done[a] for a in e.args])
        same = all([a is b for a, b in zip(args, e.args, strict=True)])
        return e if same else scalar.node(e.op, e.dtype, args, e.attr)

    return lambda root: _upwards(root, done, anew)


def substitute(roots: Sequence[Expr], names: dict[Expr, Expr]) -> list[Expr]:
    """The expressions with some nodes replaced."""
    return list(map(replacing(names), roots))


def combining(carries: Iterable[Expr], yields: Iterable[Expr]) -> set[Expr]:
    """The operations on the ways from carries to yields: those that combine partial results."""
    reaches = dict.fromkeys(carries, True)
    for root in yields:
        _upwards(root, reaches, lambda e: any([reaches[a] for a in e.args]))
    return {e for e, found in reaches.items() if found}
