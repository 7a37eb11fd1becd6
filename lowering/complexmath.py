"""Complex arithmetic and functions in terms of their real parts."""

from collections.abc import Callable

from fnx.core import scalar
from fnx.core.scalar import Expr

from .vmath.lang import V


def parts(z: Expr) -> tuple[Expr, Expr]:
    if z.op == "complex":
        return z.args[0], z.args[1]
    return scalar.apply("real", z), scalar.apply("imag", z)


def split(z: Expr) -> tuple[V, V]:
    re, im = parts(z)
    return V(re), V(im)


def join(re: V, im: V) -> Expr:
    return scalar.apply("complex", re.e, im.e)


def _mul(z: Expr, w: Expr) -> Expr:
    (a, b), (c, d) = split(z), split(w)
    return join(a * c - b * d, a * d + b * c)


def _square(z: Expr) -> Expr:
    return _mul(z, z)


DERIVED: dict[str, Callable[..., Expr]] = {"mul": _mul, "square": _square}
FUNCTIONS: dict[str, Callable[..., Expr]] = {}
