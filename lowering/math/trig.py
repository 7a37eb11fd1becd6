"""Sine, cosine and tangent, correct for every argument.

x / (2 pi) is formed modulo 1 by exact products with pieces of 1 / (2 pi) (Payne & Hanek 1983), without
branches or tables in memory:
- float32: six pieces of 28 bits, in float64; the integer part is dropped after each.
- float64: the five pieces of 53 bits that matter for x are picked by its exponent, by selects
  arranged as a barrel shifter; the sum is kept in two words.
Up to 2**30 (float32: 2**16) three parts of pi / 2 do the same at a tenth of the cost (Cody & Waite 1980).
The nearest quarter turn is taken off; what remains goes into minimax polynomials.
"""

import math

from .coefficients import C
from .exp_log import nearest
from .formulas import (
    DOUBLE,
    Pair,
    V,
    bits,
    constant,
    divide,
    double,
    estrin,
    fast_two_sum,
    flip_sign,
    fma,
    rint,
    single,
    two_product,
    two_sum,
    where,
    with_usual,
)

# the first 1280 bits of 1 / (2 pi)
TURN_BITS = 1280
TURN = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b8"
    "01924bba827464873f877ac72c4a69cfba208d7d4baed1213a671c09ad17df904e64758e60d4ce7d"
    "272117e2ef7e4a0ec7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b"
    "5d49eeb1faf97c5ecf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaeafc33ef0826bd0d87",
    16,
)
TWO_PI = 6.283185307179586, 2.4492935982947064e-16


def turn_piece(first: int, count: int) -> int:
    """`count` bits of 1 / (2 pi) from bit `first` after the binary point."""
    return (TURN >> (TURN_BITS - first - count)) & ((1 << count) - 1)


def fraction(x: V) -> V:
    """x less the nearest integer, exactly."""
    return x - rint(x)


# --- float32 -----------------------------------------------------------------------------------

SINGLE_PIECES = [turn_piece(28 * k, 28) * 2.0 ** (-28 * (k + 1)) for k in range(5)]
SINGLE_PIECES += [turn_piece(140, 53) * 2.0**-193]


def reduce_single(x: V) -> tuple[V, V, V]:
    """x = n quarter turns + hi + lo: n modulo 4 as an integer."""
    wide = double(x)
    turns = wide * SINGLE_PIECES[0]
    for piece in SINGLE_PIECES[1:]:
        turns = fma(wide, piece, fraction(turns))
    turns = fraction(turns)
    quarters = rint(turns * 4.0)
    r = fma(quarters, -0.25, turns) * TWO_PI[0]
    hi = single(r)
    return nearest(single(quarters), 1.0)[1], hi, single(r - double(hi))


# --- float64 -----------------------------------------------------------------------------------

WIDTH = 53
# Where the grid of pieces begins, such that no piece begins with more than MARGIN zeros.
OFFSET, MARGIN = -2, 4
WINDOW = 5
SCALE = 512  # 2**SCALE keeps the last pieces normal; x is multiplied by its inverse


def _double_piece(k: int) -> float:
    """Piece k of the grid; the piece before the first one is zero."""
    first = WIDTH * (k - 1) + OFFSET
    if k == 0:
        return 0.0
    skip = max(0, -first)
    value = turn_piece(first + skip, WIDTH - skip)
    return math.ldexp(value, SCALE - first - WIDTH)


DOUBLE_PIECES = [_double_piece(k) for k in range(20 + WINDOW)]


def pick_pieces(x: V) -> list[V]:
    """The WINDOW pieces whose products with x are neither whole turns nor negligible."""
    start = DOUBLE.bias + OFFSET + MARGIN
    exponent = bits(abs(x)) >> DOUBLE.fraction
    exponent = where(exponent > start, exponent, start)
    index = (exponent * 1237 - 1237 * start) >> 16  # division by 53
    pieces = [constant(p, x) for p in DOUBLE_PIECES]
    for stage in (16, 8, 4, 2, 1):
        shifted = (index & stage).ne(0)
        needed = WINDOW + stage - 1
        zero = constant(0.0, x)
        pieces = [
            where(shifted, pieces[k + stage] if k + stage < len(pieces) else zero, pieces[k])
            for k in range(min(needed, len(pieces)))
        ]
    return pieces


def turns_double(x: V) -> tuple[V, V]:
    """x / (2 pi) modulo 1, in [-1/2, 1/2], in two words; relative error below 2**-53 always."""
    p = pick_pieces(x)
    x = x * 2.0**-SCALE
    whole = two_product(x, p[0])
    first, second, third = (two_product(x, piece) for piece in p[1:4])
    c = fraction(whole.lo) + fraction(first.hi)  # exact: multiples of 2**-52
    s = two_sum(fraction(first.lo), fraction(second.hi))
    t = two_sum(second.lo, third.hi)
    a = two_sum(c, s.hi)
    b = two_sum(fraction(a.hi), t.hi)
    d = two_sum(b.hi, a.lo + s.lo)
    return d.hi, (d.lo + b.lo) + (t.lo + fma(x, p[4], third.lo))


def reduce_double(x: V) -> tuple[V, V, V]:
    """x = n quarter turns + hi + lo: n modulo 4 as an integer."""
    hi, lo = turns_double(x)
    quarters, n = nearest(hi, 4.0)
    f = fast_two_sum(fma(quarters, -0.25, hi), lo)
    r = two_product(f.hi, TWO_PI[0])
    return n, r.hi, fma(f.hi, TWO_PI[1], fma(f.lo, TWO_PI[0], r.lo))


# --- arguments of ordinary size ----------------------------------------------------------------

# pi / 2 in three numbers of the format (Cody and Waite)
HALF_PI = {
    "float32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "float64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
USUAL = {"float32": 2.0**16, "float64": 2.0**30}


def is_usual(x: V) -> V:
    """Whether reduce_usual is good enough; also for NaN."""
    return ~(abs(x) >= USUAL[x.dtype])


def reduce_usual(x: V) -> tuple[V, V, V]:
    """x = n quarter turns + hi + lo, for |x| < USUAL."""
    first, second, third = HALF_PI[x.dtype]
    quarters, n = nearest(x, 2.0 / math.pi)
    w = two_product(quarters, -second)
    r = two_sum(fma(quarters, -first, x), w.hi)  # the fma is exact
    return n, r.hi, r.lo + fma(quarters, -third, w.lo)


# --- polynomials and quadrants -----------------------------------------------------------------


def reduce(x: V) -> tuple[V, V, V]:
    """By is_usual, so that a result does not depend on which function computed it."""
    usual = is_usual(x)
    rare = reduce_single(x) if x.dtype == "float32" else reduce_double(x)
    n, hi, lo = (where(usual, a, b) for a, b in zip(reduce_usual(x), rare, strict=True))
    return n, hi, lo


def sin_cos_pairs(r: V, lo: V) -> tuple[Pair, Pair]:
    """sin and cos of r + lo, |r| <= pi / 4, as a large term and a small one."""
    z = r * r
    half = 0.5 * z
    sine = fma(z * r, estrin(z, C["SIN", r.dtype]), fma(-half, lo, lo))
    top = 1.0 - half
    rest = (1.0 - top) - half
    cosine = rest + fma(z * z, estrin(z, C["COS", r.dtype]), -(r * lo))
    return Pair(r, sine), Pair(top, cosine)


TINY = {"float32": 2.0**-13, "float64": 2.0**-27}  # below, sin(x) rounds to x


def _sine(n: V, r: V, lo: V) -> V:
    """sin of n quarter turns + r + lo."""
    s, c = sin_cos_pairs(r, lo)
    odd = (n & 1).ne(0)
    y = where(odd, c.hi, s.hi) + where(odd, c.lo, s.lo)
    width = int(n.dtype[-2:])
    return flip_sign(y, (n & 2) << (width - 2))


@with_usual("sin", is_usual, reduce_usual, reduce)
def sin(x: V, n: V, r: V, lo: V) -> V:
    return where(abs(x) < TINY[x.dtype], x, _sine(n, r, lo))


@with_usual("cos", is_usual, reduce_usual, reduce)
def cos(x: V, n: V, r: V, lo: V) -> V:
    return _sine(n + 1, r, lo)


@with_usual("tan", is_usual, reduce_usual, reduce)
def tan(x: V, n: V, r: V, lo: V) -> V:
    odd = (n & 1).ne(0)
    y = _tan_single(odd, r, lo) if x.dtype == "float32" else _tan_double(odd, r, lo)
    return where(abs(x) < TINY[x.dtype], x, y)


def _tan_double(odd: V, r: V, lo: V) -> V:
    s, c = (fast_two_sum(p.hi, p.lo) for p in sin_cos_pairs(r, lo))
    above = Pair(where(odd, -c.hi, s.hi), where(odd, -c.lo, s.lo))
    below = Pair(where(odd, s.hi, c.hi), where(odd, s.lo, c.lo))
    q = divide(above, below)
    return q.hi + q.lo


def _tan_single(odd: V, r: V, lo: V) -> V:
    z = r * r
    t = fast_two_sum(r, fma(z * r, estrin(z, C["TAN", r.dtype]), lo + z * lo))
    inverse = -1.0 / t.hi
    rest = fma(inverse, t.hi, 1.0) + inverse * t.lo
    return where(odd, fma(inverse, rest, inverse), t.hi + t.lo)
