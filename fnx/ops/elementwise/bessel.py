"""Modified Bessel functions of order 0 and 1, scaled by exp(-|x|), as scalar expressions.

Chebyshev series on [0, 8] and, in 16 / x, beyond: the partition of Cephes (S. Moshier); coefficients
are the cosine sums of values computed with 40 digits.
"""

from fnx.core import scalar as expr
from fnx.core.scalar import Expr

_I0_NEAR = (
    0.33839763720473803,
    -0.3046826723431984,
    0.17162090152220877,
    -0.09490109704804764,
    0.04930528423967071,
    -0.02373741480589947,
    0.010546460394594998,
    -0.004324309995050576,
    0.0016394756169413357,
    -0.0005763755745385824,
    0.00018850288509584165,
    -5.754195010082104e-05,
    1.6448448070728896e-05,
    -4.4167383584587505e-06,
    1.1173875391201037e-06,
    -2.670793853940612e-07,
    6.046995022541919e-08,
    -1.300025009986248e-08,
    2.6598237246823866e-09,
    -5.189795601635263e-10,
    9.675809035373237e-11,
    -1.726826291441556e-11,
    2.95505266312964e-12,
    -4.856446783111929e-13,
    7.676185498604936e-14,
    -1.1685332877993451e-14,
    1.715391285555133e-15,
    -2.431279846547955e-16,
    3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I0_FAR = (
    0.4022452055070544,
    0.0033691164782556943,
    6.889758346916825e-05,
    2.8913705208347567e-06,
    2.0489185894690638e-07,
    2.266668990498178e-08,
    3.3962320257083865e-09,
    4.94060238822497e-10,
    1.1889147107846439e-11,
    -3.1499165279632416e-11,
    -1.3215811840447713e-11,
    -1.7941785315068062e-12,
    7.180124451383666e-13,
    3.8527783827421426e-13,
    1.54008621752141e-14,
    -4.150569347287222e-14,
    -9.554846698828307e-15,
    3.8116806693526224e-15,
    1.7725601330565263e-15,
    -3.425485619677219e-16,
    -2.8276239805165836e-16,
    3.461222867697461e-17,
    4.46562142029676e-17,
    -4.830504485944182e-18,
    -7.233180487874754e-18,
)
_I1_NEAR = (
    0.12629359322181682,
    -0.17641651835783406,
    0.1026436586898471,
    -0.05294598120809499,
    0.024726449030626516,
    -0.010564084894626197,
    0.004156422944312888,
    -0.0015135724506312532,
    0.0005122859561685758,
    -0.00016176081582589674,
    4.781565107550054e-05,
    -1.3273163656039436e-05,
    3.4702513081376785e-06,
    -8.568720264695455e-07,
    2.0032947535521353e-07,
    -4.445059128796328e-08,
    9.381537386495773e-09,
    -1.8872497517228294e-09,
    3.625590281552117e-10,
    -6.663489723502027e-11,
    1.1736186298890901e-11,
    -1.9839743977649436e-12,
    3.223793365945575e-13,
    -5.042185504727912e-14,
    7.600684294735408e-15,
    -1.1055969477353862e-15,
    1.5536319577362005e-16,
    -2.111421214358166e-17,
)
_I1_FAR = (
    0.38928811750914005,
    -0.009761097491361469,
    -0.00011058893876262371,
    -3.882564808877691e-06,
    -2.512236237870209e-07,
    -2.6314688468895196e-08,
    -3.835380385964237e-09,
    -5.589743462196584e-10,
    -1.8974958123505413e-11,
    3.2526035830154884e-11,
    1.4125807436613782e-11,
    2.0356285441470896e-12,
    -7.198551776245908e-13,
    -4.0835511110921974e-13,
    -2.1015418427726643e-14,
    4.272440016711951e-14,
    1.0420276984128802e-14,
    -3.8144030724370075e-15,
    -1.8803547755107825e-15,
    3.3082023109209285e-16,
    2.96262899764595e-16,
    -3.209525921993424e-17,
    -4.6503053684893586e-17,
    4.414348323071708e-18,
    7.517296310842105e-18,
)


def _series(coefficients: tuple[float, ...], t: Expr) -> Expr:
    """Clenshaw's sum of a Chebyshev series on [-1, 1]."""
    two = expr.add(t, t)
    first, second = expr.const(0, t.dtype), expr.const(0, t.dtype)
    for c in reversed(coefficients[1:]):
        later = expr.sub(expr.mul(two, first), second)
        first, second = expr.add(later, expr.const(c, t.dtype)), first
    return expr.add(expr.sub(expr.mul(t, first), second), expr.const(coefficients[0], t.dtype))


def _parts(x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """|x|, whether it is in the inner interval, and the variables of both series."""

    def number(value: float) -> Expr:
        return expr.const(value, x.dtype)

    size = expr.apply("abs", x)
    near = expr.compare("le", size, number(8.0))
    inner = expr.sub(expr.mul(expr.apply("min", size, number(8.0)), number(0.25)), number(1.0))
    far = expr.apply("max", size, number(8.0))
    outer = expr.sub(expr.apply("div", number(16.0), far), number(1.0))
    return size, near, inner, expr.select(near, number(1.0), outer)


def i0e(x: Expr) -> Expr:
    """exp(-|x|) I0(x)."""
    size, near, inner, outer = _parts(x)
    far = expr.apply("div", _series(_I0_FAR, outer), expr.apply("sqrt", size))
    return expr.select(near, _series(_I0_NEAR, inner), far)


def i1e(x: Expr) -> Expr:
    """exp(-|x|) I1(x)."""
    size, near, inner, outer = _parts(x)
    far = expr.apply("div", _series(_I1_FAR, outer), expr.apply("sqrt", size))
    negative = expr.compare("lt", x, expr.const(0, x.dtype))
    far = expr.select(negative, expr.apply("neg", far), far)
    return expr.select(near, expr.mul(x, _series(_I1_NEAR, inner)), far)
