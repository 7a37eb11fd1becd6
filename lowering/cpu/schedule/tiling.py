"""Cache tiling: nests that read one array along rows and another along columns, a small block at a time.

What is read along columns touches a cache line for each element. In a block of few rows and columns
those lines are still at hand when their next elements are wanted. They are first brought into a
small array on the stack, transposed, where vectors of them are wanted for costly functions.

Source: tiling, Allen & Kennedy 2001, ch. 9; copy optimization (Lam, Rothberg & Wolf 1991).
Input: the stores of a closed group, and its index variables.
Output: loops over tiles of two axes, and inside them over the elements of a tile.
Legal when: iterations of the nest are independent.
Pays when: accesses along the last axis jump, and touch `TILED` lines, or crowd in few sets of the cache.
Costs: loops for the remainders.
"""

from collections.abc import Iterable
from math import gcd, prod

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import vector_abi
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir.affine import contiguous, strides_of
from fnx.lowering.ir.expressions import nodes, substitute
from fnx.lowering.ir.kernel import Loop, LoopKind, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize


def across(stores: list[Store], index: list[Expr], shape: tuple[int, ...]) -> int | None:
    """The axis along which those accesses are contiguous that jump along the last one, if it pays."""
    accesses = [(s.index, s.buffer.dtype) for s in stores]
    accesses += [(e.args[0], e.dtype) for e in _loads(stores)]
    best = contiguous([position for position, _ in accesses], index, shape)
    if best is None:
        return None
    lines = prod(shape[best + 1 :])  # cache lines that are met before the first one is met again
    axes = {id(index[-1]): 0}
    steps = [strides_of(p, axes).get(0, 0) * itemsize(dtype) for p, dtype in accesses]
    return best if lines * max(map(_crowding, steps)) >= thresholds.TILED else None


def tiled(
    builder: Generation,
    dims: list[tuple[Expr, int]],
    stores: list[Store],
    index: list[Expr],
    shape: tuple[int, ...],
) -> list[Stmt] | None:
    """The loops of a nest tile by tile, if that pays."""
    axis = across(stores, index, shape)
    return None if axis is None else loops(builder, dims, stores, axis)


def _crowding(step: int) -> int:
    """How many times as many lines share a set of a cache as where lines lie side by side."""
    return (
        max(gcd(step, thresholds.CACHE_SETS * thresholds.CPU.line) // thresholds.CPU.line, 1)
        if step
        else 1
    )


def _nodes(stores: list[Store]) -> Iterable[Expr]:
    return nodes([e for s in stores for e in (s.value, s.index)])


def _loads(stores: list[Store]) -> list[Expr]:
    return [e for e in _nodes(stores) if e.op == "load"]


def loops(
    builder: Generation, dims: list[tuple[Expr, int]], body: list[Store], axis: int
) -> list[Stmt]:
    """Loops over tiles of `axis` and the last one, and inside them over the elements of a tile."""
    last = len(dims) - 1
    axes = {id(v): k for k, (v, _) in enumerate(dims)}
    far = [e for e in _loads(body) if _is_far(strides_of(e.args[0], axes), axis, last)]
    if not any(vector_abi.exists(e.op, e.dtype) for e in _nodes(body)):
        far = []  # to read them where they are is as good
    exprs = [*far, *(e for s in body for e in (s.index, s.value))]
    (across, m), (along, n) = dims[axis], dims[last]
    rows, columns = min(thresholds.TILE[0], m), min(thresholds.TILE[1], n)
    block, i = scalar.counter("t", -(-m // rows)), scalar.counter("i", rows)
    length = scalar.size(rows)
    start = scalar.mul(block, scalar.size(rows))
    if m % rows:
        length = scalar.apply("min", scalar.sub(scalar.size(m), start), length)
    exprs = substitute(exprs, {across: scalar.add(start, i)})
    other, j = scalar.counter("t", -(-n // columns)), scalar.counter("j", columns)
    width = scalar.const(columns, "int64")
    start = scalar.mul(other, scalar.size(columns))
    if n % columns:  # vectors want tiles of one length: the last one overlaps
        start = scalar.apply("min", start, scalar.size(n - columns))
    exprs = substitute(exprs, {along: scalar.add(start, j)})
    stmts: list[Stmt] = []
    place = scalar.add(scalar.mul(i, width), j)
    for k in range(len(far)):
        stack = builder.new_stack(exprs[k].dtype, rows * columns)
        copy = Loop(j, width, [Store(stack, place, exprs[k])], kind=LoopKind.VECTORIZED)
        stmts.append(Loop(i, length, [copy]))
        exprs = substitute(exprs, {exprs[k]: scalar.load(stack, place, stack.dtype)})
    new = iter(exprs[len(far) :])
    stores: list[Stmt] = [Store(s.buffer, next(new), next(new)) for s in body]
    # Unrolled before the vectoriser comes, what is computed would not become vectors.
    inner = Loop(j, width, stores, kind=LoopKind.VECTORIZED, rolled=bool(far))
    stmts.append(Loop(i, length, [inner]))
    stmts = [Loop(block, scalar.size(-(-m // rows)), stmts)]
    stmts = [Loop(other, scalar.size(-(-n // columns)), stmts)]  # far reads run on in their rows
    for k, (v, size) in reversed(list(enumerate(dims))):
        if k not in (axis, last):
            stmts = [Loop(v, scalar.size(size), stmts)]
    return stmts


def _is_far(strides: dict[int, int], axis: int, last: int) -> bool:
    return abs(strides.get(last, 0)) >= policy.FAR_STRIDE and abs(strides.get(axis, 0)) == 1
