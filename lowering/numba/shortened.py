"""Printed Python with less work for Numba in it: what it means is the same, fewer steps say it.

Numba's time goes by the calls in a text, each of which it types and lowers by itself. A printed
`np.uint32(13)` is a name, an attribute, a number and a call: here it is one global.
A choice, or arithmetic that is cast, is one instruction.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import parts, sharing

_RING = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_NARROW = frozenset(f"{u}int{n}" for n in (8, 16, 32) for u in ("", "u"))
_OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_OPERATORS |= {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_OPERATORS |= {ast.LShift: "shl", ast.RShift: "shr"}
_KNOWN: dict[tuple, Any] = {}  # signatures by function and types of operands
_NUMBERS = _NARROW | {"int64", "uint64", "float32", "float64", "bool_"}


def functions(text: str, file: str, space: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The code of a text with one function: its parts by names, and the function that calls them.

    What its new names stand for is put into `space`.
    """
    tree = _Instructions(space).visit(_Shorter(space).visit(ast.parse(text, file)))
    tasks = sharing.tasks(tree)
    cut = [p for f in (tree.body[0], *tasks) for p in parts.cut(f)]
    made = {p.name: ast.Module([p], []) for p in (*cut, *tasks)}
    codes = {n: compile(ast.fix_missing_locations(m), file, "exec") for n, m in made.items()}
    return codes, compile(ast.fix_missing_locations(tree), file, "exec")


def kernel(text: str, file: str, space: dict[str, Any]) -> Any:
    """The code of a text with one function that stays whole, and counts without iterators."""
    tree = _Counted().visit(_Shorter(space).visit(ast.parse(text, file)))
    return compile(ast.fix_missing_locations(tree), file, "exec")


class _Counted(ast.NodeTransformer):
    """Loops over ranges that go up become `while` loops, which Numba and LLVM have less to do for.

    A range computes its length first, by a division where its step is unknown, and then counts that
    down beside the index. Steps are positive, as of the threads of a grid, or they are numbers.
    """

    def __init__(self) -> None:
        self.count = 0

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=[end]):
                first, step = ast.Constant(0), ast.Constant(1)
            case ast.Call(func=ast.Name(id="range"), args=[first, end, step]) if not isinstance(
                step, ast.UnaryOp
            ):
                pass
            case _:
                return node
        before: list[ast.stmt] = []
        end, step = (self._once(e, before) for e in (end, step))
        index = node.target.id  # type: ignore[attr-defined]
        condition = ast.Compare(ast.Name(index, ast.Load()), [ast.Lt()], [end])
        onwards = ast.AugAssign(ast.Name(index, ast.Store()), ast.Add(), step)
        loop = ast.While(condition, [*node.body, onwards], [])
        return [*before, ast.Assign([node.target], first), loop]

    def _once(self, e: Any, before: list[ast.stmt]) -> Any:
        """A number, or a name for what is evaluated before the loop."""
        if isinstance(e, ast.Constant):
            return e
        self.count += 1
        name = f"counted_{self.count}"
        before.append(ast.Assign([ast.Name(name, ast.Store())], e))
        return ast.Name(name, ast.Load())


class _Shorter(ast.NodeTransformer):
    """Casts of numbers become globals, casts by NumPy names, and casts inside of casts nothing."""

    def __init__(self, space: dict[str, Any]):
        self.space = space

    def visit_Call(self, node: ast.Call) -> ast.AST:
        cast = _cast(node)
        if cast is None:
            return self._view(self.generic_visit(node))
        operand = self.visit(node.args[0])
        value = self._value(operand)
        if value is not None:
            return self._global(cast, getattr(np, cast)(value))
        if cast in _NARROW:
            operand = self._without(operand, cast)
        node.func, node.args = ast.Name(f"np_{cast}", ast.Load()), [operand]
        self.space[f"np_{cast}"] = getattr(np, cast)
        return node

    def _view(self, node: Any) -> ast.AST:
        """The bits of a number as another one: Numba has no `view` of a global."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="view"), args=[kind]
            ) if name.startswith("number_"):
                return self._global(kind.attr, self.space[name].view(getattr(np, kind.attr)))
        return node

    def _value(self, node: ast.AST) -> Any:
        """The number that an expression is, None if it is none."""
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return node.value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
                return -node.operand.value
            case ast.Name() if node.id.startswith("number_"):
                return self.space[node.id]
        return None

    def _global(self, cast: str, value: Any) -> ast.Name:
        name = f"number_{cast}_{value.tobytes().hex()}"
        self.space[name] = value
        return ast.Name(name, ast.Load())

    def _without(self, node: Any, cast: str) -> Any:
        """Arithmetic whose last bits count, without the casts inside that keep just these."""
        match node:
            case ast.BinOp() if isinstance(node.op, _RING):
                node.left, node.right = self._inner(node.left, cast), self._inner(node.right, cast)
        return node

    def _inner(self, node: Any, cast: str) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.BinOp() as inner]) if (
                name == f"np_{cast}" and isinstance(inner.op, (*_RING, ast.LShift))
            ):
                return inner
        return node


class _Instructions(ast.NodeTransformer):
    """What takes Numba long becomes calls of `instructions.py`: choices, bits, arithmetic of 32 bits."""

    def __init__(self, space: dict[str, Any]):
        from . import instructions  # which imports Numba

        self.space, self.get = space, instructions.get

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return self._call("choose", [node.test, node.body, node.orelse]) or node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:  # before what is in it: the cast says of which type the bits are
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Call(func=ast.Name(id=cast), args=[operand]), attr="view"
                ),
                args=[ast.Attribute(attr=target)],
            ):
                found = self._call(f"view_{cast.removeprefix('np_')}_{target}", [operand])
            case ast.Call(func=ast.Name(id=cast), args=[ast.BinOp(left=a, op=op, right=b)]):
                name = _OPERATORS.get(type(op), "")
                found = self._call(f"{name}_{cast.removeprefix('np_')}", [a, b])
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr=name), args=[_]):
                found = self._call(name, node.args)
            case _:
                found = None
        return self.generic_visit(found or node)

    def _call(self, name: str, operands: list[ast.expr]) -> ast.AST | None:
        """A call of an instruction, where there is one of this name."""
        function = self.get(name)
        if function is None:
            return None
        self.space[f"op_{name}"] = function
        return ast.Call(ast.Name(f"op_{name}", ast.Load()), operands, [])


def _cast(node: ast.Call) -> str | None:
    """The dtype of `np.dtype(x)`."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="np"), attr=name), args=[_], keywords=[]
        ):
            return name if name in _NUMBERS else None
    return None


@contextmanager
def remembering(context: Any) -> Iterator[None]:
    """A typing context of Numba's that looks up each operation on the same types once, meanwhile."""
    from numba.core import types

    look_up = context.resolve_function_type

    def resolve_function_type(function: Any, args: Any, kws: Any) -> Any:
        if kws or isinstance(function, types.Dispatcher):
            return look_up(function, args, kws)
        key = function, tuple(args)
        found = _KNOWN.get(key)
        if found is None:
            found = _KNOWN[key] = look_up(function, args, kws)
        return found

    context.resolve_function_type = resolve_function_type
    try:
        yield
    finally:
        del context.resolve_function_type
