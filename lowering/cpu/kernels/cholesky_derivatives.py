"""Tangents and cotangents of Cholesky factors in rows, as factorizations.py, forwards and backwards.

Each is computed in place of its lower triangle; L and it are read and written there alone. What is
above the diagonal is overwritten. Iain Murray, "Differentiation of the Cholesky decomposition" (2016).
"""

from fnx.lowering.cpu.llvm.ir_builder import Function, Value, i64

from .blocked import BLOCK, Kit
from .routine_names import name

# order, L, its rows apart, tangent or cotangent, its rows apart, a square matrix of space, work
SLOPE = "i64 ptr i64 ptr i64 ptr ptr".split()


def text(dtype: str) -> str:
    """The LLVM IR of the routines for a dtype."""
    return str(_Slopes(dtype).module)


class _Slopes(Kit):
    """Writes the functions of one dtype."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.lower_product()
        self.mirror()
        self.tangent_block()
        self.cotangent_block()
        self.tangent()
        self.cotangent()

    def get(self, f: Function, place: Value) -> Value:
        return f.load(place, 0, self.t)

    def op(self, f: Function, name: str, x: Value, y: Value) -> Value:
        return f.emit(self.t, f"{name} {x}, {y.name}")

    def subtract(self, f: Function, place: Value, *factors: Value) -> None:
        """Take a product from what is there."""
        f.store(self.op(f, "fsub", self.get(f, place), self.op(f, "fmul", *factors)), place)

    def mirror(self) -> None:
        """Copy a lower triangle, and add its transpose (twice?) or zeros above the diagonal.

        Arguments: order, triangle, its rows apart, target in rows of that order, symmetric?
        """
        with Function(self.module, "mirror", "void", *"i64 ptr i64 ptr i64".split()) as f:
            n, a, leading, target, symmetric = f.args
            zero = Value(self.t, "0.0")
            both = f.compare("ne", symmetric, 0)
            with f.loop(n) as i:
                with f.loop(i) as j:
                    x = self.get(f, self.element(f, a, leading, i, j))
                    f.store(x, self.element(f, target, n, i, j))
                    f.store(f.choose(both, x, zero), self.element(f, target, n, j, i))
                x = self.get(f, self.element(f, a, leading, i, i))
                twice = self.op(f, "fadd", x, x)
                f.store(f.choose(both, twice, x), self.element(f, target, n, i, i))
            f.ret()

    def tangent_block(self) -> None:
        """At most eight rows: order, L, its rows apart, tangent, its rows apart."""
        with Function(self.module, "tangent_block", "void", *SLOPE[:-2]) as f:
            n, l, row, t, leading = f.args
            at = lambda i, j: (self.element(f, l, row, i, j), self.element(f, t, leading, i, j))
            with f.loop(n) as k:
                pivot, change = at(k, k)
                d = self.get(f, pivot)
                half = self.op(f, "fmul", Value(self.t, "0.5"), self.inverse(f, d))
                inverse = self.inverse(f, d)
                dk = self.op(f, "fmul", self.get(f, change), half)
                f.store(dk, change)
                after = f.add(k, 1)
                with f.loop(n, after) as i:
                    x, place = at(i, k)
                    self.subtract(f, place, self.get(f, x), dk)
                    f.store(self.op(f, "fmul", self.get(f, place), inverse), place)
                with f.loop(n, after) as i:
                    x, dx = (self.get(f, p) for p in at(i, k))
                    with f.loop(f.add(i, 1), after) as j:
                        y, dy = (self.get(f, p) for p in at(j, k))
                        self.subtract(f, at(i, j)[1], dx, y)
                        self.subtract(f, at(i, j)[1], x, dy)
            f.ret()

    def cotangent_block(self) -> None:
        """At most eight rows: order, L, its rows apart, cotangent, its rows apart."""
        with Function(self.module, "cotangent_block", "void", *SLOPE[:-2]) as f:
            n, l, row, g, leading = f.args
            at = lambda i, j: (self.element(f, l, row, i, j), self.element(f, g, leading, i, j))
            with f.loop(n) as number:
                k = f.sub(f.sub(n, 1), number)
                after = f.add(k, 1)
                with f.loop(n, after) as i:
                    x, gx = at(i, k)
                    with f.loop(f.add(i, 1), after) as j:
                        y, gy = at(j, k)
                        s = self.get(f, at(i, j)[1])
                        self.subtract(f, gx, s, self.get(f, y))
                        self.subtract(f, gy, s, self.get(f, x))
                pivot, whole = at(k, k)
                inverse = self.inverse(f, self.get(f, pivot))
                with f.loop(n, after) as i:
                    x, gx = at(i, k)
                    b = self.op(f, "fmul", self.get(f, gx), inverse)
                    f.store(b, gx)
                    self.subtract(f, whole, self.get(f, x), b)
                half = self.op(f, "fmul", Value(self.t, "0.5"), inverse)
                f.store(self.op(f, "fmul", self.get(f, whole), half), whole)
            f.ret()

    def cut(self, f: Function, block: str) -> tuple:
        """Small matrices by a routine for a block; then the halves of the order, and of both
        matrices what is below the first half, and the last corner.
        """
        n, l, row, other, leading = f.args[:5]
        with f.when(f.compare("sle", n, BLOCK)):
            f.call(block, "void", *f.args[:-2])
            f.ret()
        first, second = self.halves(f, n)

        def parts(a: Value, apart: Value) -> tuple[Value, Value]:
            below = self.of(f, a, f.mul(apart, first))
            return below, self.of(f, below, first)

        return first, second, parts(l, row), parts(other, leading)

    def tangent(self) -> None:
        """L' of L L' = A, from A': SLOPE."""
        public = name("cholesky_tangent", self.dtype)
        with Function(self.module, public, "void", *SLOPE, public=True) as f:
            _, l, row, t, leading, space, work = f.args
            one, zero = i64(1), i64(0)
            first, second, (l21, l22), (t21, t22) = self.cut(f, "tangent_block")
            f.call(public, "void", first, l, row, t, leading, space, work)
            f.call("mirror", "void", first, t, leading, space, zero)
            factors = (l21, row, one, space, one, first)
            self.minus_product(f, second, first, first, *factors, t21, leading, work)
            shape = (second, first, l, one, row, t21, leading, zero, zero)
            f.call(name("solve_right", self.dtype), "void", *shape, work)
            for a, b in ((t21, l21), (l21, t21)):
                strides = (leading, row) if a is t21 else (row, leading)
                factors = (a, strides[0], one, b, one, strides[1])
                f.call("lower_product", "void", second, first, *factors, t22, leading, work)
            f.call(public, "void", second, l22, row, t22, leading, space, work)
            f.ret()

    def cotangent(self) -> None:
        """The cotangent of A from that of L: SLOPE."""
        public = name("cholesky_cotangent", self.dtype)
        with Function(self.module, public, "void", *SLOPE, public=True) as f:
            _, l, row, g, leading, space, work = f.args
            one = i64(1)
            first, second, (l21, l22), (g21, g22) = self.cut(f, "cotangent_block")
            f.call(public, "void", second, l22, row, g22, leading, space, work)
            f.call("mirror", "void", second, g22, leading, space, one)
            factors = (space, second, one, l21, row, one)
            self.minus_product(f, second, first, second, *factors, g21, leading, work)
            shape = (second, first, l, row, one, g21, leading, i64(0), one)
            f.call(name("solve_right", self.dtype), "void", *shape, work)
            factors = (g21, one, leading, l21, row, one)
            f.call("lower_product", "void", first, second, *factors, g, leading, work)
            f.call(public, "void", first, l, row, g, leading, space, work)
            f.ret()
