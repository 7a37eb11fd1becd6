"""Activation functions, element by element."""

import math
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.util import canonical_axis, constant, promote, promote_inexact, select, strong
from fnx.numpy.elementwise import ufuncs as u
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise.special import erfc


def _float(name: str, x: Any) -> Array:
    return promote_inexact(name, x)[0]


def identity(x):
    """x.

    >>> fnx.nn.identity(jnp.array([-1.0, 2.0]))
    Array([-1.,  2.], dtype=float64)
    """
    return u.positive(x)


def relu(x):
    """max(x, 0), with derivative 0 at 0.

    >>> fnx.nn.relu(-1.0)
    Array(0., dtype=float64, weak_type=True)
    """
    x = u.positive(x)
    zero = constant(0, x.dtype)
    if dtypes.is_complex(x.dtype):  # ordered by their real parts
        return u.maximum(x, zero)
    return select(ops.le(x, zero), zero, x)


def relu6(x):
    """min(max(x, 0), 6), with derivative 0 at both ends.

    >>> fnx.nn.relu6(jnp.array([-1.0, 2.0, 9.0]))
    Array([0., 2., 6.], dtype=float64)
    """
    x, six = promote("relu6", u.positive(x), 6.0)
    if dtypes.is_complex(x.dtype):
        return u.minimum(relu(x), six)
    return select(ops.ge(x, six), six, relu(x))


def sigmoid(x):
    """1 / (1 + exp(-x)).

    >>> fnx.nn.sigmoid(0.0)
    Array(0.5, dtype=float64, weak_type=True)
    """
    return ops.logistic(_float("sigmoid", x))


def softplus(x):
    """log(1 + exp(x)).

    >>> fnx.nn.softplus(jnp.array([-1000.0, 1000.0]))
    Array([   0., 1000.], dtype=float64)
    """
    return u.logaddexp(x, 0)


def sparse_plus(x):
    """0 below -1, x above 1, a parabola between.

    >>> fnx.nn.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float64)
    """
    x = u.positive(x)
    return u.where3(x <= -1.0, 0.0, u.where3(x >= 1.0, x, (x + 1.0) ** 2 / 4))


def sparse_sigmoid(x):
    """The derivative of `sparse_plus`: a ramp from 0 at -1 to 1 at 1.

    >>> fnx.nn.sparse_sigmoid(jnp.array([-2.0, 0.5, 2.0]))
    Array([0.  , 0.75, 1.  ], dtype=float64)
    """
    return 0.5 * u.clip(u.positive(x) + 1.0, 0.0, 2.0)


def squareplus(x, b=4):
    """(x + sqrt(x**2 + b)) / 2.

    >>> fnx.nn.squareplus(jnp.array([0.0, 1.5]))
    Array([1., 2.], dtype=float64)
    """
    x = u.positive(x)
    return (x + u.sqrt(u.square(x) + b)) / 2


def soft_sign(x):
    """x / (1 + |x|).

    >>> fnx.nn.soft_sign(jnp.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float64)
    """
    x = u.positive(x)
    return x / (u.abs(x) + 1)


def silu(x):
    """x * sigmoid(x).

    >>> fnx.nn.silu(jnp.array([0.0, 1.0]))
    Array([0.        , 0.73105858], dtype=float64)
    """
    x = _float("silu", x)
    return ops.mul(x, ops.logistic(x))


swish = silu


def mish(x):
    """x * tanh(softplus(x)).

    >>> fnx.nn.mish(jnp.array([0.0, 1.0]))
    Array([0.        , 0.86509839], dtype=float64)
    """
    x = _float("mish", x)
    return x * u.tanh(softplus(x))


def log_sigmoid(x):
    """log(sigmoid(x)), without cancellation.

    >>> fnx.nn.log_sigmoid(jnp.array([-1000.0, 0.0]))
    Array([-1.00000000e+03, -6.93147181e-01], dtype=float64)
    """
    return u.negative(softplus(u.negative(_float("log_sigmoid", x))))


def elu(x, alpha=1.0):
    """x above 0, alpha (exp(x) - 1) below.

    >>> fnx.nn.elu(jnp.array([-1.0, 2.0]))
    Array([-0.63212056,  2.        ], dtype=float64)
    """
    x = u.positive(x)
    above = x > 0
    return u.where3(above, x, alpha * u.expm1(u.where3(above, 0.0, x)))


def celu(x, alpha=1.0):
    """x above 0, alpha (exp(x / alpha) - 1) below.

    >>> fnx.nn.celu(jnp.array([-1.0, 2.0]), alpha=2.0)
    Array([-0.78693868,  2.        ], dtype=float64)
    """
    x = u.positive(x)
    above = x > 0
    return u.where3(above, x, alpha * u.expm1(u.where3(above, 0.0, x) / alpha))


def selu(x):
    """`elu`, scaled so that variances are kept (Klambauer et al. 2017).

    >>> fnx.nn.selu(jnp.array([-1.0, 2.0]))
    Array([-1.11133074,  2.10140197], dtype=float64)
    """
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


def leaky_relu(x, negative_slope=0.01):
    """x above 0, negative_slope * x below.

    >>> fnx.nn.leaky_relu(jnp.array([-1.0, 2.0]))
    Array([-0.01,  2.  ], dtype=float64)
    """
    x = u.positive(x)
    return u.where3(x >= 0, x, negative_slope * x)


def hard_tanh(x):
    """x, cut off at -1 and 1.

    >>> fnx.nn.hard_tanh(jnp.array([-2.0, 0.5]))
    Array([-1. ,  0.5], dtype=float64)
    """
    x = u.positive(x)
    return u.where3(x > 1, 1, u.where3(x < -1, -1, x))


def hard_sigmoid(x):
    """relu6(x + 3) / 6.

    >>> fnx.nn.hard_sigmoid(jnp.array([-3.0, 0.0, 3.0]))
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    return relu6(u.positive(x) + 3.0) / 6.0


def hard_silu(x):
    """x * hard_sigmoid(x).

    >>> fnx.nn.hard_silu(jnp.array([0.0, 1.5, 4.0]))
    Array([0.   , 1.125, 4.   ], dtype=float64)
    """
    x = u.positive(x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


def gelu(x, approximate=True):
    """x times the normal distribution function of x, or its approximation by tanh.

    >>> fnx.nn.gelu(jnp.array([0.0, 1.0]), approximate=False)
    Array([0.        , 0.84134475], dtype=float64)
    """
    x = strong(_float("gelu", x))
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return x * (0.5 * (1.0 + u.tanh(inner)))
    return 0.5 * x * erfc(-x / math.sqrt(2))  # erfc keeps its digits far below 0


def glu(x, axis=-1):
    """The first half along an axis times the sigmoid of the second.

    ValueError for an odd size.

    >>> fnx.nn.glu(jnp.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float64)
    """
    x = _float("glu", x)
    k = canonical_axis(axis, x.ndim, "axis of glu")
    n = x.shape[k]
    if n % 2:
        raise InvalidValue(f"glu along an axis of size {n}; expected an even size")
    lead = (slice(None),) * k
    return x[(*lead, slice(0, n // 2))] * sigmoid(x[(*lead, slice(n // 2, n))])


def tanh(x, /):
    """The hyperbolic tangent.

    >>> fnx.nn.tanh(jnp.array([0.0, 100.0]))
    Array([0., 1.], dtype=float64)
    """
    return u.tanh(x)


def log1mexp(x):
    """log(1 - exp(-x)) for x > 0, without cancellation (Maechler 2012).

    >>> fnx.nn.log1mexp(jnp.array([1e-20, jnp.log(2)]))
    Array([-46.05170186,  -0.69314718], dtype=float64)
    """
    x = _float("log1mexp", x)
    small = x < math.log(2)
    return u.where3(
        small,
        u.log(-u.expm1(-u.where3(small, x, 1.0))),
        u.log1p(-u.exp(-u.where3(small, 1.0, x))),
    )


__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "swish",
    "tanh",
]
