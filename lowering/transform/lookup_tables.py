"""Lookup tables: small arrays that a nest reads at positions which vary are laid in memory before it.

A small array is one expression an element. Read at a position that is known only at run time, it is
a chain of selects between all of them: for the levels of a grid that has eleven, ten comparisons a
point. One store an element, once for all points, makes that a load.

Source: chains of selects, or a switch, to a lookup table (LLVM's SimplifyCFG).
Input: nests with chains of selects by one position.
Output: the stores, then the nest with loads.
Legal when: the elements do not change within the nest.
Pays when: there are more than a few elements, and work enough for each of the stores.
Costs: an array on the stack.
"""

from collections.abc import Iterable

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, replacing
from fnx.lowering.ir.kernel import Loop, Nest, Stmt, Store
from fnx.lowering.ir.number_formats import KIND
from fnx.lowering.transform.statements import Statements


def in_memory(builder: Statements) -> None:
    """Rewrite all nests of a program."""
    for stmt in traversal.statements(builder.block):
        if isinstance(stmt, Nest) and all(map(_is_plain, traversal.statements(stmt.body))):
            _rewrite(builder, stmt)


def _is_plain(stmt: Stmt) -> bool:
    return type(stmt) in traversal.REWRITTEN


def _rewrite(builder: Statements, nest: Nest) -> None:
    chains = _chains(traversal.nodes(nest.body))
    if not chains:
        return
    work = traversal.work(nest.body)
    written = traversal.all_writes(nest).keys()
    inside = [v for s in traversal.statements(nest.body) for v in traversal.defined(s)]
    inside += [s.index for s in traversal.statements(nest.body) if isinstance(s, Loop)]
    stacks: dict[tuple[Expr, ...], object] = {}
    stores: list[Stmt] = []
    names: dict[Expr, Expr] = {}
    for head, (position, elements) in chains.items():
        if (
            len(elements) <= policy.TABLE_ELEMENTS
            or work < policy.TABLE_WORK * len(elements)
            or KIND[head.dtype] == "h"
        ):
            continue
        low, high = scalar.bounds(position)
        if low < 0 or high >= len(elements) or not depends_on([position], inside):
            continue
        if depends_on(elements, inside) or not buffers_read(elements).isdisjoint(written):
            continue
        if elements not in stacks:
            stacks[elements] = stack = builder.new_stack(head.dtype, len(elements))
            stores += [Store(stack, scalar.size(k), e) for k, e in enumerate(elements)]
        names[head] = scalar.load(stacks[elements], position, head.dtype)
    if names:
        new = replacing(names)
        nest.body[:] = [*stores, *(traversal.rewritten(s, new) for s in nest.body)]


def comparisons(nodes: Iterable[Expr]) -> set[Expr]:
    """What the choices among expressions compare that may become loads."""
    found: set[Expr] = set()
    for e, (_, elements) in _chains(nodes).items():
        if len(elements) > policy.TABLE_ELEMENTS:
            for _ in elements[1:]:
                found.add(e.args[0])
                e = e.args[2]
    return found


def _chains(nodes: Iterable[Expr]) -> dict[Expr, tuple[Expr, tuple[Expr, ...]]]:
    """The choices between consecutive elements from the first on, by position."""
    found = {}
    for head in nodes:
        e, elements = head, []
        position = _position(e, 0)
        if position is None:
            continue
        while _position(e, len(elements)) is position:
            elements.append(e.args[1])
            e = e.args[2]
        found[head] = (position, (*elements, e))
    return found


def _position(e: Expr, k: int) -> Expr | None:
    """The position that an expression asks about, if it chooses by whether that is `k`."""
    if e.op != "select" or e.args[0].op != "eq":
        return None
    position, number = e.args[0].args
    return position if number.op == "size" and number.attr == k else None
