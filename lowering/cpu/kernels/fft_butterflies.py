"""The passes of Stockham's autosort FFT (Van Loan 1992, ch. 1), as LLVM IR with explicit vectors.

A pass of radix r over x, m groups of r numbers that are m s apart, each s times side by side:

    y[q + s (r p + j)] = w(m r, p j) sum over k of w(r, j k) x[q + s (p + k m)]

with w(n, k) = exp(-2 pi i k / n), p < m, q < s. The first pass reads and the last one writes complex
numbers as arrays have them; between the two, memory holds vectors of real and of imaginary parts in
turn. Rows: numbers that are transformed lie side by side, and the lanes of the first pass are p, so
that s starts at the radix. Columns: `width` transforms lie side by side and s starts at that.
The inverse exchanges real and imaginary parts on the way in and on the way out.

A pass is `void (record, source, target)`; the record's words are its function and what is below.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once
from fnx.lowering.cpu.llvm.ir_builder import Function, Module, Value, i64

from .fft_vectors import BYTES, Complex, Vectors

# Words of a record: m, s (of one transform, in numbers), width, the distance of rows in bytes, twiddles,
# the factor (its bits) with which the last pass multiplies, and where it reads and writes: a place
# of the driver's, times 8.
WORDS = 9
FUNCTION, GROUPS, SIDES, WIDTH, STRIDE, TWIDDLES, FACTOR, FROM, TO = range(WORDS)
SOURCE, TARGET, ONE, TWO, THREE = range(0, 40, 8)


@once
def address(kind: str, dtype: str, lanes: int, radix: int, inverse: bool) -> int:
    """The address of a pass, compiled when it is first needed; it stays for good."""
    name = "fft_pass"

    def text() -> str:
        module = Module()
        with Function(module, name, "void", "ptr", "ptr", "ptr", public=True) as f:
            _Pass(f, dtype, lanes, radix, inverse).write(kind)
            f.ret()
        return str(module).replace("(ptr %a0, ptr %a1, ptr %a2)", _ARGUMENTS)

    about = f"{name} {kind} {dtype} {lanes} {radix} {inverse}"
    code = code_cache.code(text, (name,), kind="transform", name=about)
    code_cache.keep_forever(code.keep)
    return code.addresses[name]


_PREFETCH = (Value("i32", "1"), Value("i32", "2"), Value("i32", "1"))  # to write, into L2, data
_ARGUMENTS = "(ptr noalias %a0, ptr noalias %a1, ptr noalias %a2)"


class _Pass:
    """The code of one pass."""

    def __init__(self, f: Function, dtype: str, lanes: int, radix: int, inverse: bool):
        self.f, self.v = f, Vectors(f, dtype, lanes)
        self.radix, self.inverse = radix, inverse
        self.record, self.source, self.target = f.args
        self.number = 2 * BYTES[dtype]  # bytes of a complex number
        self.vector = lanes * self.number

    def write(self, kind: str) -> None:
        getattr(self, "_" + kind)()

    def word(self, k: int) -> Value:
        return self.f.load(self.record, 8 * k)

    def pointer(self, k: int) -> Value:
        return self.f.pointer(self.record, 8 * k)

    @contextmanager
    def each(self, start: Value | int, end: Value, step: int) -> Iterator[Value]:
        """for k in range(start, end, step)."""
        f = self.f
        k = f.variable("i64", start)
        with f.forever() as done:
            now = k.get()
            with f.unless(f.compare("slt", now, end)):
                f.leave(done)
            yield now
            k.set(f.add(now, step))

    def many(self, base: Value, distance: Value, count: int) -> list[Value]:
        """`count` addresses that are `distance` bytes apart."""
        out = [base]
        for _ in range(count - 1):
            out.append(self.f.at(out[-1], distance))
        return out

    # --- complex numbers as arrays have them

    def _read(self, at: Value) -> Complex:
        re, im = self.v.load_mixed(at)
        return (im, re) if self.inverse else (re, im)

    def _write(self, x: Complex, at: Value, factor: Value) -> None:
        re, im = self.v.scale(x, factor)
        self.v.store_mixed((im, re) if self.inverse else (re, im), at)

    # --- passes

    def _row_first(self) -> None:
        """Lanes are p; what they make is transposed. The last vector may overlap the one before."""
        f, v, r = self.f, self.v, self.radix
        m, twiddles = self.word(GROUPS), self.pointer(TWIDDLES)
        apart, row = f.mul(m, self.number), f.mul(m, v.bytes)
        last = f.sub(m, v.lanes)
        with self.each(0, m, v.lanes) as k:
            p = f.choose(f.compare("slt", k, last), k, last)
            places = self.many(f.at(self.source, f.mul(p, self.number)), apart, r)
            ys = v.transform([self._read(at) for at in places])
            tables = self.many(f.at(twiddles, f.mul(p, v.bytes)), row, 2 * (r - 1))
            for j in range(1, r):
                w = v.load(tables[2 * j - 2]), v.load(tables[2 * j - 1])
                ys[j] = v.mul(ys[j], w)
            to = f.at(self.target, f.mul(p, r * self.number))
            for block in range(r // v.lanes):
                here = ys[block * v.lanes : (block + 1) * v.lanes]
                columns = [v.transposed([y[part] for y in here]) for part in (0, 1)]
                for lane in range(v.lanes):
                    offset = (lane * (r // v.lanes) + block) * self.vector
                    v.store_pair((columns[0][lane], columns[1][lane]), to, offset)

    def _twiddle(self, p: Value) -> list[Complex]:
        """The factors of group p, in all lanes."""
        row = 2 * (self.radix - 1) * self.v.bytes
        at = self.f.at(self.pointer(TWIDDLES), self.f.mul(p, row))
        size = 2 * self.v.bytes
        return [
            (self.v.splat(at, j * size), self.v.splat(at, j * size + self.v.bytes))
            for j in range(self.radix - 1)
        ]

    def _turned(self, xs: list[Complex], twiddles: list[Complex]) -> list[Complex]:
        first, *others = self.v.transform(xs)
        return [first, *[self.v.mul(y, w) for y, w in zip(others, twiddles, strict=True)]]

    def _middle(self) -> None:
        f, v, r = self.f, self.v, self.radix
        m, s = self.word(GROUPS), self.word(SIDES)
        side = f.mul(s, self.number)
        apart = f.mul(side, m)
        with self.each(0, m, 1) as p:
            twiddles = self._twiddle(p)
            sources = self.many(f.at(self.source, f.mul(p, side)), apart, r)
            targets = self.many(f.at(self.target, f.mul(f.mul(p, side), r)), side, r)
            with self.each(0, side, self.vector) as q:
                ys = self._turned([v.load_pair(f.at(x, q)) for x in sources], twiddles)
                for y, to in zip(ys, targets, strict=True):
                    v.store_pair(y, f.at(to, q))

    def _column_first(self) -> None:
        f, v, r = self.f, self.v, self.radix
        m, width, stride = self.word(GROUPS), self.word(WIDTH), self.word(STRIDE)
        side, apart = f.mul(width, self.number), f.mul(stride, m)
        with self.each(0, m, 1) as p:
            twiddles = self._twiddle(p)
            sources = self.many(f.at(self.source, f.mul(p, stride)), apart, r)
            targets = self.many(f.at(self.target, f.mul(f.mul(p, side), r)), side, r)
            with self.each(0, side, self.vector) as q:
                for x in sources:
                    self._fetch(f.at(f.at(x, q), side))
                ys = self._turned([self._read(f.at(x, q)) for x in sources], twiddles)
                for y, to in zip(ys, targets, strict=True):
                    v.store_pair(y, f.at(to, q))

    def _fetch(self, place: Value) -> None:
        """Ask for the same rows of the next block: they lie too far apart for the CPU to foresee."""
        for line in range(0, self.vector, 64):
            self.f.call("llvm.prefetch.p0", "void", self.f.at(place, line), *_PREFETCH)

    def _row_last(self) -> None:
        f, v = self.f, self.v
        side, factor = f.mul(self.word(SIDES), self.number), v.splat(self.record, 8 * FACTOR)
        sources = self.many(self.source, side, self.radix)
        targets = self.many(self.target, side, self.radix)
        with self.each(0, side, self.vector) as q:
            for y, to in zip(
                v.transform([v.load_pair(f.at(x, q)) for x in sources]), targets, strict=True
            ):
                self._write(y, f.at(to, q), factor)

    def _column_last(self) -> None:
        f, v = self.f, self.v
        rows, width, stride = self.word(SIDES), self.word(WIDTH), self.word(STRIDE)
        factor = v.splat(self.record, 8 * FACTOR)
        side = f.mul(width, self.number)
        apart, jump = f.mul(side, rows), f.mul(stride, rows)
        with self.each(0, rows, 1) as k:
            sources = self.many(f.at(self.source, f.mul(k, side)), apart, self.radix)
            targets = self.many(f.at(self.target, f.mul(k, stride)), jump, self.radix)
            with self.each(0, side, self.vector) as q:
                ys = v.transform([v.load_pair(f.at(x, q)) for x in sources])
                for y, to in zip(ys, targets, strict=True):
                    self._write(y, f.at(to, q), factor)

    # --- rows of any length, as many as lanes: turned into columns and back

    def _turned_blocks(
        self, move: Callable[[Value, list[Value]], None], rows: Value, n: Value, size: int
    ) -> None:
        """For vectors of n positions in the rows, the last of which may overlap: position, places."""
        f, v = self.f, self.v
        stride, last = self.word(STRIDE), f.sub(n, v.lanes)
        with self.each(0, n, v.lanes) as k:
            at = f.choose(f.compare("slt", k, last), k, last)
            move(at, self.many(f.at(rows, f.mul(at, size)), stride, v.lanes))

    def _turn_over(self, xs: list[Complex]) -> list[Complex]:
        re, im = (self.v.transposed([x[part] for x in xs]) for part in (0, 1))
        return list(zip(re, im, strict=True))

    def _gather(self) -> None:
        def move(at: Value, places: list[Value]) -> None:
            to = self.f.at(self.target, self.f.mul(at, self.vector))
            for lane, x in enumerate(self._turn_over([self._read(p) for p in places])):
                self.v.store_pair(x, to, lane * self.vector)

        self._turned_blocks(move, self.source, self.word(GROUPS), self.number)

    def _scatter(self) -> None:
        factor = self.v.splat(self.record, 8 * FACTOR)

        def move(at: Value, places: list[Value]) -> None:
            f = self.f
            here = f.at(self.source, f.mul(at, self.vector))
            xs = [self.v.load_pair(here, k * self.vector) for k in range(self.v.lanes)]
            for x, place in zip(self._turn_over(xs), places, strict=True):
                self._write(x, place, factor)

        self._turned_blocks(move, self.target, self.word(SIDES), self.number)

    # --- real rows of odd length as complex ones; of even length, by complex ones of half of it

    def _gather_real(self) -> None:
        zero = self.v.number(0.0)

        def move(at: Value, places: list[Value]) -> None:
            to = self.f.at(self.target, self.f.mul(at, self.vector))
            for k, x in enumerate(self.v.transposed([self.v.load(place) for place in places])):
                self.v.store_pair((x, zero), to, k * self.vector)

        self._turned_blocks(move, self.source, self.word(GROUPS), self.v.bytes)

    def _scatter_untangled(self) -> None:
        """As `_untangle`, but frequency by frequency, each of all rows."""
        f, v, h = self.f, self.v, self.word(GROUPS)
        half, zero, table = v.number(0.5), v.number(0.0), self.pointer(TWIDDLES)

        def at_number(k: Value) -> Complex:
            return v.load_pair(f.at(self.source, f.mul(k, self.vector)))

        def move(at: Value, places: list[Value]) -> None:
            xs = []
            for lane in range(v.lanes):
                k = f.add(at, lane)
                back = f.sub(h, k)
                first, last = f.compare("eq", k, 0), f.compare("eq", back, 0)
                here = f.choose(last, i64(0), k)
                z, mirror = at_number(here), at_number(f.choose(first, i64(0), back))
                conj = mirror[0], v.negative(mirror[1])
                even = v.scale(v.add(z, conj), half)
                w = f.at(table, f.mul(k, self.number))
                turn = v.splat(w), v.splat(w, v.bytes)
                odd = v.mul(v.over_i(v.scale(v.sub(z, conj), half)), turn)
                re, im = v.add(even, odd)
                xs.append((re, f.choose(f.either(first, last), zero, im)))
            for x, place in zip(self._turn_over(xs), places, strict=True):
                v.store_mixed(x, place)

        self._turned_blocks(move, self.target, self.word(SIDES), self.number)

    # --- real transforms of even length, by complex ones of half of it

    def _halves(self, one: Callable[[Vectors, Value], None]) -> None:
        """Frequencies k and h - k belong together: vectors of them, then the others one by one."""
        f, v = self.f, self.v
        half = f.binary("ashr", self.word(GROUPS), 1)
        whole = f.binary("ashr", f.sub(half, 1), v.lanes.bit_length() - 1)
        start = f.add(f.mul(whole, v.lanes), 1)
        with self.each(1, start, v.lanes) as k:
            one(v, k)
        single = Vectors(f, v.dtype, 1)
        with self.each(start, f.add(half, 1), 1) as k:
            one(single, k)

    def _untangle(self) -> None:
        """From the transform Z of pairs of reals, h numbers at `target`, to the h + 1 of the reals."""
        f = self.f
        h = self.word(GROUPS)
        table = self.pointer(TWIDDLES)
        rows = f.mul(f.add(f.binary("ashr", h, 1), 1), self.v.bytes)

        def one(v: Vectors, k: Value) -> None:
            low = f.at(self.target, f.mul(k, self.number))
            back = f.sub(f.sub(h, k), v.lanes - 1)
            high = f.at(self.target, f.mul(back, self.number))
            z, mirror = v.load_mixed(low), v.reverse(v.load_mixed(high))
            half = v.number(0.5)
            conj = mirror[0], v.negative(mirror[1])
            even = v.scale(v.add(z, conj), half)
            at = f.at(table, f.mul(k, v.bytes))
            w = v.load(at), v.load(at, rows)
            odd = v.mul(v.over_i(v.scale(v.sub(z, conj), half)), w)
            # X[k] = even + odd, and X[h - k] = conj(even - odd)
            x, y = v.add(even, odd), v.sub(even, odd)
            v.store_mixed(v.reverse((y[0], v.negative(y[1]))), high)
            v.store_mixed(x, low)

        self._halves(one)
        v = Vectors(f, self.v.dtype, 1)
        re, im = v.load_mixed(self.target)
        zero = v.number(0.0)
        v.store_mixed((v.apply("fadd", re, im), zero), self.target)
        v.store_mixed((v.apply("fsub", re, im), zero), f.at(self.target, f.mul(h, self.number)))

    # --- any length, by the convolution of what was multiplied by a chirp with another (Bluestein)

    def _all(self, count: Value, one: Callable[[Vectors, Value], None]) -> None:
        """Each of `count` numbers: vectors of them, then the others one by one."""
        v = self.v
        whole = self.f.binary("and", count, -v.lanes)
        with self.each(0, whole, v.lanes) as k:
            one(v, k)
        with self.each(whole, count, 1) as k:
            one(Vectors(self.f, v.dtype, 1), k)

    def _chirp(self, v: Vectors, k: Value) -> Complex:
        at = self.f.at(self.pointer(TWIDDLES), self.f.mul(k, v.bytes))
        return v.load(at), v.load(at, self.f.mul(self.word(GROUPS), v.bytes))

    def _chirp_in(self, real: bool = False) -> None:
        """m numbers times the chirp, then zeros, s in all."""
        f, m, s = self.f, self.word(GROUPS), self.word(SIDES)

        def one(v: Vectors, k: Value) -> None:
            chirp = self._chirp(v, k)
            if real:
                x = v.load(f.at(self.source, f.mul(k, v.bytes)))
                y = v.scale(chirp, x)
            else:
                re, im = v.load_mixed(f.at(self.source, f.mul(k, self.number)))
                y = v.mul((im, re) if self.inverse else (re, im), chirp)
            v.store_mixed(y, f.at(self.target, f.mul(k, self.number)))

        self._all(m, one)
        rest = f.mul(f.sub(s, m), self.number)
        zeros = f.at(self.target, f.mul(m, self.number))
        f.call("llvm.memset.p0.i64", "void", zeros, Value("i8", "0"), rest, Value("i1", "false"))

    def _chirp_in_real(self) -> None:
        self._chirp_in(real=True)

    def _multiply(self) -> None:
        """m numbers at `target` times those of the table."""
        f = self.f

        def one(v: Vectors, k: Value) -> None:
            at = f.at(self.target, f.mul(k, self.number))
            table = f.at(self.pointer(TWIDDLES), f.mul(k, self.number))
            v.store_mixed(v.mul(v.load_mixed(at), v.load_mixed(table)), at)

        self._all(self.word(GROUPS), one)

    def _chirp_out(self) -> None:
        """s numbers times the chirp, which has m."""
        f = self.f

        def one(v: Vectors, k: Value) -> None:
            offset = f.mul(k, self.number)
            re, im = v.mul(v.load_mixed(f.at(self.source, offset)), self._chirp(v, k))
            v.store_mixed((im, re) if self.inverse else (re, im), f.at(self.target, offset))

        self._all(self.word(SIDES), one)

    # --- real transforms of even length: the way back

    def _tangle(self) -> None:
        """The other way: h + 1 frequencies of reals, to the h of pairs, times 2."""
        f = self.f
        h = self.word(GROUPS)
        table = self.pointer(TWIDDLES)
        rows = f.mul(f.add(f.binary("ashr", h, 1), 1), self.v.bytes)

        def one(v: Vectors, k: Value) -> None:
            back = f.mul(f.sub(f.sub(h, k), v.lanes - 1), self.number)
            low = f.mul(k, self.number)
            x = v.load_mixed(f.at(self.source, low))
            mirror = v.reverse(v.load_mixed(f.at(self.source, back)))
            conj = mirror[0], v.negative(mirror[1])
            even, difference = v.add(x, conj), v.sub(x, conj)
            at = f.at(table, f.mul(k, v.bytes))
            w = v.load(at), v.negative(v.load(at, rows))
            odd = v.mul(difference, w)
            # Z[k] = even + i odd, and Z[h - k] = conj(even) + i conj(odd)
            z = v.apply("fsub", even[0], odd[1]), v.apply("fadd", even[1], odd[0])
            y = v.apply("fadd", even[0], odd[1]), v.apply("fsub", odd[0], even[1])
            v.store_mixed(v.reverse(y), f.at(self.target, back))
            v.store_mixed(z, f.at(self.target, low))

        self._halves(one)
        v = Vectors(f, self.v.dtype, 1)
        first, _ = v.load_mixed(self.source)
        last, _ = v.load_mixed(f.at(self.source, f.mul(h, self.number)))
        both = v.apply("fadd", first, last), v.apply("fsub", first, last)
        v.store_mixed(both, self.target)


def twiddles(n: int, ps: np.ndarray, js: np.ndarray) -> np.ndarray:
    """exp(-2 pi i p j / n), with angles up to an eighth of a turn."""
    k = np.multiply.outer(ps, js) % n
    octant, rest = np.divmod(8 * k, n)
    odd = octant % 2 == 1
    angle = np.pi / 4 * np.where(odd, n - rest, rest) / n
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(odd, s, c), np.where(odd, c, s)  # within the quadrant of this octant
    quadrant = octant // 2
    # a quarter turn takes (c, s) to (-s, c)
    re = np.choose(quadrant, [c, -s, -c, s])
    im = np.choose(quadrant, [s, c, -s, -c])
    return re - 1j * im
