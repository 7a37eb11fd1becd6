"""Long functions cut into parts, each a function of its own, before Numba compiles them.

Some of Numba's passes take time with the square of a function's blocks: five thousand lines took longer
than all else together. What is cut are runs of statements; names that they read, and names that others
read of them, become arguments and results. The printed source stays whole.

Source: outlining of regions with their live variables (Zhao & Amaral 2007).
"""

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

from . import thresholds

Body = list[ast.stmt]
_CHILDREN = {  # where there are names, of what there is most of
    ast.Call: ("func", "args", "keywords"),
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"),
    ast.Assign: ("targets", "value"),
}


def cut(function: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Take parts out of a function: those that it now calls."""
    if sum(map(_weight, function.body)) <= thresholds.WHOLE:
        return []
    cutter = _Cutter(function)
    function.body = cutter.block(function.body)
    return cutter.parts


def _weight(s: ast.AST) -> int:
    """How much work a statement is for Numba: statements in it, blocks more than others."""
    if not isinstance(s, (ast.For, ast.While, ast.If)):
        return 1
    return 5 + sum(map(_weight, s.body)) + sum(map(_weight, s.orelse))


class _Cutter:
    """Makes parts of a function's statements."""

    def __init__(self, function: ast.FunctionDef):
        self.parts: list[ast.FunctionDef] = []
        self.name = function.name
        self.known = {a.arg for a in function.args.args}  # assigned before, in the text's order
        self.loads = names(function.body, ast.Load)
        self.own = self.known | names(function.body, ast.Store).keys()

    def block(self, body: Body) -> Body:
        """A block, in which runs of statements are calls of parts."""
        found: Body = []
        run: Body = []
        weight = 0
        for s in body:
            own = _weight(s)
            if own > 2 * thresholds.PART or _leaves(s):
                found += self.part(run)
                run, weight = [], 0
                found.append(self.inside(s))
                continue
            run.append(s)
            weight += own
            if weight >= thresholds.PART:
                found += self.part(run)
                run, weight = [], 0
        # A few statements at an end are not worth a function.
        return found + (self.part(run) if weight > thresholds.PART // 4 else self.left(run))

    def left(self, run: Body) -> Body:
        self.known |= names(run, ast.Store).keys()
        return run

    def inside(self, s: Any) -> ast.stmt:
        """A statement that is too long for a part, or leaves the function, with parts inside."""
        if isinstance(s, ast.For):
            self.known |= names([s.target], ast.Store).keys()
        for name in ("body", "orelse"):
            if getattr(s, name, None) and isinstance(s, (ast.For, ast.While, ast.If)):
                setattr(s, name, self.block(getattr(s, name)))
        self.known |= names([s], ast.Store).keys()
        return s

    def part(self, run: Body) -> Body:
        """A call of a new part, or the statements themselves where no part can be made of them."""
        if not run:
            return run
        stored, loads = names(run, ast.Store), names(run, ast.Load)
        flow = Flow(self.own)
        flow.block(run)
        # What it reads of before, it may read again in the next round of a loop around it.
        outs = [n for n in stored if self.loads[n] > loads[n] or n in flow.read]
        ins = dict.fromkeys([*flow.read, *(n for n in outs if n not in flow.assigned)])
        before, self.known = self.known, self.known | stored.keys()
        if not before.issuperset(ins):
            return run
        name = f"{self.name}_part{len(self.parts) + 1}"
        last = ast.Return(_tuple(outs, ast.Load())) if outs else ast.Return(None)
        arguments = ast.arguments([], [ast.arg(n) for n in ins], None, [], [], None, [])
        self.parts.append(ast.FunctionDef(name, arguments, [*run, last], []))
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in ins], [])
        return [ast.Assign([_tuple(outs, ast.Store())], call) if outs else ast.Expr(call)]


def _tuple(names: Sequence[str], context: ast.expr_context) -> ast.expr:
    if len(names) == 1:
        return ast.Name(names[0], context)
    return ast.Tuple([ast.Name(n, context) for n in names], context)


def names(body: Sequence[ast.AST], context: type) -> Counter:
    """How often names are read, or assigned, in the order in which they are met."""
    found: Counter = Counter()
    left = [*reversed(body)]
    while left:
        node = left.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is context:
                found[node.id] += 1
        elif kind is not ast.Constant:
            for name in reversed(_CHILDREN.get(kind, kind._fields)):
                child = getattr(node, name, None)
                if type(child) is list:
                    left += reversed(child)
                elif isinstance(child, ast.AST):
                    left.append(child)
    return found


def _leaves(s: ast.AST, looped: bool = False) -> bool:
    """Whether a statement may leave the block around it."""
    if isinstance(s, ast.Return) or isinstance(s, ast.Break) and not looped:
        return True
    if not isinstance(s, (ast.For, ast.While, ast.If)):
        return False
    inner = looped or not isinstance(s, ast.If)
    return any(_leaves(x, inner) for x in (*s.body, *s.orelse))


class Flow:
    """What a run of statements reads of before, and assigns whatever way it takes."""

    def __init__(self, own: set[str]):
        self.own = own
        self.read: dict[str, None] = {}
        self.assigned: set[str] = set()

    def block(self, body: Sequence[ast.stmt]) -> None:
        for s in body:
            self.statement(s)

    def uses(self, node: ast.AST) -> None:
        for n in names([node], ast.Load):
            if n in self.own and n not in self.assigned:
                self.read[n] = None

    def statement(self, s: Any) -> None:
        match s:
            case ast.For():
                self.uses(s.iter)
                before = set(self.assigned)
                self.assigned |= names([s.target], ast.Store).keys()
                self.block(s.body)
                self.assigned = before
            case ast.While():
                self.uses(s.test)
                before = set(self.assigned)
                self.block(s.body)
                self.assigned = before
            case ast.If():
                self.uses(s.test)
                before = set(self.assigned)
                self.block(s.body)
                then, self.assigned = self.assigned, before
                self.block(s.orelse)
                self.assigned &= then
            case _:
                self.uses(s)
                self.assigned |= names([s], ast.Store).keys()
