"""Vectors of complex numbers in LLVM IR: a vector of real parts and one of imaginary parts."""

from math import cos, pi, sin

from fnx.core.fast_dataclasses import dataclass
from fnx.lowering.cpu.llvm.ir_builder import Function, Value

Complex = tuple[Value, Value]
TYPE = {"float32": "float", "float64": "double"}
BYTES = {"float32": 4, "float64": 8}


@dataclass
class Vectors:
    """Prints operations on vectors of `lanes` numbers into a function."""

    f: Function
    dtype: str
    lanes: int

    @property
    def type(self) -> str:
        return f"<{self.lanes} x {TYPE[self.dtype]}>"

    @property
    def bytes(self) -> int:
        return BYTES[self.dtype]

    # --- arithmetic

    def apply(self, op: str, a: Value, b: Value) -> Value:
        return self.f.emit(a.type, f"{op} contract {a}, {b.name}")

    def add(self, a: Complex, b: Complex) -> Complex:
        return self.apply("fadd", a[0], b[0]), self.apply("fadd", a[1], b[1])

    def sub(self, a: Complex, b: Complex) -> Complex:
        return self.apply("fsub", a[0], b[0]), self.apply("fsub", a[1], b[1])

    def mul(self, a: Complex, w: Complex) -> Complex:
        rr, ii = self.apply("fmul", a[0], w[0]), self.apply("fmul", a[1], w[1])
        ri, ir = self.apply("fmul", a[0], w[1]), self.apply("fmul", a[1], w[0])
        return self.apply("fsub", rr, ii), self.apply("fadd", ri, ir)

    def scale(self, a: Complex, factor: Value) -> Complex:
        return self.apply("fmul", a[0], factor), self.apply("fmul", a[1], factor)

    def negative(self, x: Value) -> Value:
        return self.f.emit(x.type, f"fneg {x}")

    def over_i(self, a: Complex) -> Complex:
        """a divided by i."""
        return a[1], self.negative(a[0])

    def number(self, x: float) -> Value:
        """A constant in all lanes."""
        bits = double_bits(x, self.dtype)
        return Value(self.type, f"splat ({TYPE[self.dtype]} {bits})")

    # --- the discrete transform of a few values

    def transform(self, xs: list[Complex]) -> list[Complex]:
        """The forward transform of 2, 4 or 8 values, or of an odd number of them."""
        n = len(xs)
        if n % 2:
            return self._odd(xs)
        if n == 2:
            return [self.add(*xs), self.sub(*xs)]
        evens, odds = self.transform(xs[::2]), self.transform(xs[1::2])
        turned = [self._turn(y, k, n) for k, y in enumerate(odds)]
        pairs = list(zip(evens, turned, strict=True))
        return [self.add(a, b) for a, b in pairs] + [self.sub(a, b) for a, b in pairs]

    def _turn(self, a: Complex, k: int, n: int) -> Complex:
        """a times exp(-2 pi i k / n)."""
        if k == 0:
            return a
        if 4 * k == n:
            return self.over_i(a)
        if n == 8:  # (1 - i) and (-1 - i), over sqrt 2
            half = self.number(0.5**0.5)
            total = self.apply("fadd", a[0], a[1])
            difference = self.apply("fsub", a[1], a[0])
            if k == 1:
                return self.scale((total, difference), half)
            return self.scale((difference, self.negative(total)), half)
        raise ValueError(f"no transform of {n} values")

    def _odd(self, xs: list[Complex]) -> list[Complex]:
        """By pairs that mirror each other: sums have cosines, differences sines."""
        n, first = len(xs), xs[0]
        pairs = [(xs[k], xs[n - k]) for k in range(1, n // 2 + 1)]
        sums, differences = [self.add(*p) for p in pairs], [self.sub(*p) for p in pairs]
        total = first
        for s in sums:
            total = self.add(total, s)
        out = [total] + [first] * (n - 1)
        for j in range(1, n // 2 + 1):
            even, odd = first, None
            for k, (s, d) in enumerate(zip(sums, differences, strict=True), 1):
                angle = 2 * pi * (j * k % n) / n
                even = self.add(even, self.scale(s, self.number(cos(angle))))
                term = self.scale(d, self.number(sin(angle)))
                odd = term if odd is None else self.add(odd, term)
            assert odd is not None
            turned = self.over_i(odd)
            out[j], out[n - j] = self.add(even, turned), self.sub(even, turned)
        return out

    # --- memory

    def load(self, at: Value, offset: Value | int = 0) -> Value:
        return self.f.emit(
            self.type, f"load {self.type}, {self.f.at(at, offset)}, align {self.bytes}"
        )

    def store(self, x: Value, at: Value, offset: Value | int = 0) -> None:
        self.f.do(f"store {x}, {self.f.at(at, offset)}, align {self.bytes}")

    def splat(self, at: Value, offset: int = 0) -> Value:
        """A number from memory in all lanes."""
        t = TYPE[self.dtype]
        x = self.f.emit(t, f"load {t}, {self.f.at(at, offset)}, align {self.bytes}")
        one = self.f.emit(self.type, f"insertelement {self.type} poison, {x}, i64 0")
        return self._shuffle(one, one, [0] * self.lanes)

    def _shuffle(self, a: Value, b: Value, lanes: list[int]) -> Value:
        mask = ", ".join(f"i32 {k}" for k in lanes)
        kind = f"<{len(lanes)} x {TYPE[self.dtype]}>"
        return self.f.emit(kind, f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{mask}>")

    def load_pair(self, at: Value, offset: int = 0) -> Complex:
        """Real parts of `lanes` numbers, then their imaginary parts."""
        return self.load(at, offset), self.load(at, offset + self.lanes * self.bytes)

    def store_pair(self, x: Complex, at: Value, offset: int = 0) -> None:
        self.store(x[0], at, offset)
        self.store(x[1], at, offset + self.lanes * self.bytes)

    def load_mixed(self, at: Value) -> Complex:
        """Complex numbers as arrays have them."""
        kind, n = f"<{2 * self.lanes} x {TYPE[self.dtype]}>", 2 * self.lanes
        both = self.f.emit(kind, f"load {kind}, {at}, align {self.bytes}")
        return tuple(self._shuffle(both, both, list(range(k, n, 2))) for k in (0, 1))  # type: ignore[return-value]

    def store_mixed(self, x: Complex, at: Value) -> None:
        n = self.lanes
        both = self._shuffle(x[0], x[1], [k + n * j for k in range(n) for j in (0, 1)])
        self.f.do(f"store {both}, {at}, align {self.bytes}")

    def reverse(self, x: Complex) -> Complex:
        order = list(range(self.lanes))[::-1]
        return self._shuffle(x[0], x[0], order), self._shuffle(x[1], x[1], order)

    def transposed(self, rows: list[Value]) -> list[Value]:
        """As many vectors as there are lanes, transposed by exchanging halves, quarters, ..."""
        n = self.lanes
        width = n // 2
        while width:
            out = list(rows)
            for k in range(n):
                if not k & width:
                    a, b = rows[k], rows[k + width]
                    low = [(j if not j & width else n + j - width) for j in range(n)]
                    high = [(j + width if not j & width else n + j) for j in range(n)]
                    out[k], out[k + width] = self._shuffle(a, b, low), self._shuffle(a, b, high)
            rows, width = out, width // 2
        return rows


def double_bits(x: float, dtype: str) -> str:
    """A constant as LLVM writes it: the bits of the double, exact for a float too."""
    import numpy as np

    rounded = np.float64(np.float32(x) if dtype == "float32" else x)
    return f"0x{rounded.view(np.uint64):016X}"
