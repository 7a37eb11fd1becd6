"""Loops over `shared` become functions of a range of iterations, which the thread pool calls.

The pool is that of fnx's own code, so that both use the same threads, as many as are asked for
(`lowering/cpu/runtime/thread_pool.py`). Numba's own parallel loops would take threads of their own, and
seconds to compile.

Source: outlining of parallel regions, as compilers do it for OpenMP.
"""

import ast
from copy import deepcopy
from typing import Any

from fnx.lowering.ir import kernel, traversal

from .parts import Flow, names

_OF_ONE_THREAD = (
    kernel.Let,
    kernel.Eval,
    kernel.Store,
    kernel.If,
    kernel.Loop,
    kernel.While,
    kernel.Copy,
    kernel.Fill,
    kernel.Transpose,
)


def can_be_shared(s: kernel.Loop) -> bool:
    """Whether threads share a loop: none of them has to call Python, to stop or to tell."""
    if not s.kind.parallel or s.carries or s.reverse:
        return False
    found = [*traversal.statements([s])]
    alone = all(type(x) in _OF_ONE_THREAD for x in found)
    loops = [x for x in found if isinstance(x, (kernel.Loop, kernel.While))]
    return alone and not any(x.polled or x.shown is not None for x in loops)


def tasks(tree: ast.Module) -> list[ast.FunctionDef]:
    """Take the bodies of shared loops out of the one function of a module, which then shares them out."""
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    outliner = _Outliner(function)
    if any(isinstance(n, ast.Name) and n.id == "shared" for n in ast.walk(function)):
        outliner.visit(function)
    return outliner.tasks


class _Outliner(ast.NodeTransformer):
    """Makes a function of each shared loop, and a call that shares it out."""

    def __init__(self, function: ast.FunctionDef):
        self.tasks: list[ast.FunctionDef] = []
        self.name = function.name
        self.own = {a.arg for a in function.args.args} | names(function.body, ast.Store).keys()
        self.arrays = {s.targets[0].id: s for s in function.body if _is_array(s)}  # type: ignore[attr-defined]

    def visit_For(self, node: ast.For) -> ast.AST:
        match node.iter:
            case ast.Call(func=ast.Name(id="shared"), args=[run, count, least]):
                return self._shared(node, run, count, least)
        return self.generic_visit(node)

    def _shared(self, node: ast.For, run: ast.expr, count: ast.expr, least: ast.expr) -> ast.AST:
        name = f"{self.name}_task{len(self.tasks) + 1}"
        flow = Flow(self.own)
        flow.assigned |= names([node.target], ast.Store).keys()
        flow.block(node.body)
        ours = [n for n in flow.read if n in self.arrays and _writes(node, n)]
        given = [n for n in flow.read if n not in ours]
        low, high = f"{name}_first", f"{name}_end"
        bounds: list[ast.expr] = [ast.Name(n, ast.Load()) for n in (low, high)]
        node.iter = ast.Call(ast.Name("range", ast.Load()), bounds, [])
        body: list[ast.stmt] = [*(deepcopy(self.arrays[n]) for n in ours), node]
        arguments = [ast.arg(n) for n in (low, high, *given)]
        self.tasks.append(
            ast.FunctionDef(name, ast.arguments([], arguments, None, [], [], None, []), body, [])
        )
        values = ast.Tuple([ast.Name(n, ast.Load()) for n in given], ast.Load())
        call = [run, ast.Name(name, ast.Load()), count, least, values]
        return ast.Expr(ast.Call(ast.Name("share", ast.Load()), call, []))


def _is_array(s: Any) -> bool:
    """Whether a statement makes an array that is one thread's."""
    match s:
        case ast.Assign(
            targets=[ast.Name()],
            value=ast.Call(func=ast.Attribute(value=ast.Name("np"), attr="empty")),
        ):
            return True
    return False


def _writes(node: ast.AST, name: str) -> bool:
    """Whether elements of an array are stored anywhere inside."""
    return any(
        isinstance(n, ast.Subscript)
        and isinstance(n.ctx, ast.Store)
        and isinstance(n.value, ast.Name)
        and n.value.id == name
        for n in ast.walk(node)
    )
