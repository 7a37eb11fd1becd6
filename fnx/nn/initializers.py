"""Initial values of parameters: functions of a random key, a shape and a dtype."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

from fnx import random
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays import creation
from fnx.numpy.arrays.util import named
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.diagonals import diagonal
from fnx.numpy.structure.shapes import moveaxis
from fnx.ops.elementwise import arithmetic as ops


class Initializer(Protocol):
    """(key, shape, dtype) -> array.

    >>> make: fnx.nn.initializers.Initializer = fnx.nn.initializers.he_normal()
    >>> make(fnx.random.key(0), (4, 3)).shape
    (4, 3)
    """

    def __call__(
        self, key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None
    ) -> Array: ...


def zeros(key, shape, dtype=None, out_sharding=None):
    """Zeros; the key is not read.

    >>> fnx.nn.initializers.zeros(fnx.random.key(0), (2,))
    Array([0., 0.], dtype=float64)
    """
    del key
    return creation.zeros(shape, dtype)


def ones(key, shape, dtype=None, out_sharding=None):
    """Ones; the key is not read.

    >>> fnx.nn.initializers.ones(fnx.random.key(0), (2,))
    Array([1., 1.], dtype=float64)
    """
    del key
    return creation.ones(shape, dtype)


def constant(value, dtype=None):
    """An initializer of a constant.

    >>> fnx.nn.initializers.constant(3.0)(fnx.random.key(0), (2,))
    Array([3., 3.], dtype=float64)
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        del key
        return creation.full(shape, value, _float(dtype))

    return init


def _float(dtype: Any) -> Any:
    return dtypes.canonical(float if dtype is None else dtype)


def _times(x: Array, scale: Any) -> Array:
    """A product in the dtype of x, whatever that of the scale is."""
    return u.multiply(x, creation.asarray(scale, dtype=x.dtype))


def uniform(scale=1e-2, dtype=None):
    """An initializer of numbers uniform in [0, scale).

    >>> x = fnx.nn.initializers.uniform(0.1)(fnx.random.key(0), (1000,))
    >>> bool((x >= 0).all() & (x < 0.1).all())
    True
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        return _times(random.uniform(key, shape, _float(dtype)), scale)

    return init


def normal(stddev=1e-2, dtype=None):
    """An initializer of normal numbers.

    >>> x = fnx.nn.initializers.normal(0.5)(fnx.random.key(0), (2000,))
    >>> float(x.std().round(1))
    0.5
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        return _times(random.normal(key, shape, _float(dtype)), stddev)

    return init


def truncated_normal(stddev=1e-2, dtype=None, lower=-2.0, upper=2.0):
    """An initializer of normal numbers between two bounds, in units of stddev.

    >>> x = fnx.nn.initializers.truncated_normal(0.1)(fnx.random.key(0), (1000,))
    >>> bool((abs(x) <= 0.2 / 0.8796).all())
    True
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        return _times(random.truncated_normal(key, lower, upper, shape, _float(dtype)), stddev)

    return init


def _size(shape: Sequence[int], axes: Any) -> int:
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    return math.prod([shape[a] for a in axes])


def _fans(
    shape: Sequence[int], in_axis: Any, out_axis: Any, batch_axis: Any
) -> tuple[float, float]:
    """How many inputs and outputs meet each unit."""
    if len(shape) < 2 and in_axis == -2:
        raise InvalidValue(
            f"an initializer that scales by fan-in needs at least 2 axes, not {tuple(shape)}"
        )
    inputs, outputs = _size(shape, in_axis), _size(shape, out_axis)
    field = math.prod(shape) / inputs / outputs / _size(shape, batch_axis)
    return inputs * field, outputs * field


def _on_disc(key: Any, shape: Any, dtype: Any, radius: Any) -> Array:
    """Complex numbers whose direction is uniform, and whose size is a function of a uniform number."""
    of_radius, of_angle = random.split(key)
    real = dtypes.real_of(dtype)
    size = radius(random.uniform(of_radius, shape, real))
    angle = 2 * math.pi * random.uniform(of_angle, shape, real)
    return ops.complex_(u.multiply(size, u.cos(angle)), u.multiply(size, u.sin(angle)))


def _uniform_disc(key: Any, shape: Any, dtype: Any) -> Array:
    """Uniform in a disc, of variance 1."""
    return _on_disc(key, shape, dtype, lambda s: u.sqrt(2 * s))


def _normal_disc(key: Any, shape: Any, dtype: Any) -> Array:
    """Normal numbers of sizes below 2, whose standard deviation is then the divisor, as JAX has it."""
    inside = 1 - math.exp(-4)
    out = _on_disc(key, shape, dtype, lambda s: u.sqrt(-u.log1p(-inside * s)))
    return u.divide(out, 0.95311164380491208)


_DISCS = {"uniform": _uniform_disc, "truncated_normal": _normal_disc}


def variance_scaling(scale, mode, distribution, in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
    """An initializer whose variance is scale / fan, with mode "fan_in", "fan_out", "fan_avg",
    "fan_geo_avg", and distribution "normal", "truncated_normal" or "uniform".

    ValueError for another mode or distribution.

    >>> init = fnx.nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    >>> float((init(fnx.random.key(0), (100, 50)).std() * 10).round(1))  # 1 / sqrt(100), times 10
    1.0
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        fans = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": math.sqrt(fan_in * fan_out),
        }
        if mode not in fans:
            raise InvalidValue(
                f"variance_scaling with mode={mode!r}; expected one of {', '.join(fans)}"
            )
        variance = scale / fans[mode]
        wanted = _float(dtype)
        if distribution == "normal":
            return u.multiply(random.normal(key, shape, wanted), math.sqrt(variance))
        if distribution in _DISCS and dtypes.is_complex(wanted):
            return u.multiply(_DISCS[distribution](key, shape, wanted), math.sqrt(variance))
        if distribution == "uniform":
            return u.multiply(random.uniform(key, shape, wanted, -1), math.sqrt(3 * variance))
        if distribution == "truncated_normal":
            # The standard deviation of a standard normal number between -2 and 2.
            stddev = math.sqrt(variance) / 0.87962566103423978
            return u.multiply(random.truncated_normal(key, -2, 2, shape, wanted), stddev)
        raise InvalidValue(f"variance_scaling with distribution={distribution!r} is not known")

    return init


def _scaled(name: str, scale: float, mode: str, distribution: str, doc: str) -> Any:
    spread = "(fnx.random.key(0), (100, 100)).std() * 10"
    example = f">>> x = fnx.nn.initializers.{name}(){spread}\n    >>> float(x.round(1))"

    @named(
        name,
        f"{doc} Variance {scale:g} / {mode}.\n\n    {example}\n    {math.sqrt(scale):.1f}\n    ",
    )
    def make(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None):
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    return make


glorot_uniform = _scaled(
    "glorot_uniform", 1.0, "fan_avg", "uniform", "Glorot and Bengio (2010), uniform."
)
glorot_normal = _scaled(
    "glorot_normal", 1.0, "fan_avg", "truncated_normal", "Glorot and Bengio (2010), normal."
)
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform", "LeCun et al. (1998), uniform.")
lecun_normal = _scaled(
    "lecun_normal", 1.0, "fan_in", "truncated_normal", "LeCun et al. (1998), normal."
)
he_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform", "He et al. (2015), uniform.")
he_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal", "He et al. (2015), normal.")
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


def orthogonal(scale=1.0, column_axis=-1, dtype=None):
    """An initializer of matrices with orthonormal rows or columns, uniformly distributed.

    ValueError for fewer than two axes.

    >>> q = fnx.nn.initializers.orthogonal()(fnx.random.key(0), (3, 3))
    >>> bool(jnp.allclose(q @ q.T, jnp.eye(3)))
    True
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        # Most networks have no such matrices, and fnx.numpy.linalg has many modules.
        from fnx.numpy import linalg

        if len(shape) < 2:
            raise InvalidValue(
                f"orthogonal initial values need at least 2 axes, not {tuple(shape)}"
            )
        if not math.prod(shape):
            return creation.zeros(shape, _float(dtype))
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        tall = (rows, columns) if rows > columns else (columns, rows)
        q, r = linalg.qr(random.normal(key, tall, _float(dtype)))
        # With the signs of R's diagonal the distribution is uniform (Mezzadri 2007).
        q = u.multiply(q, u.sign(diagonal(r)))
        q = q.T if rows < columns else q
        q = q.reshape((*[n for k, n in enumerate(shape) if k != column_axis % len(shape)], columns))
        return u.multiply(moveaxis(q, -1, column_axis), scale)

    return init


def delta_orthogonal(scale=1.0, column_axis=-1, dtype=None):
    """An initializer of convolutions: orthogonal at the centre, 0 around it (Xiao et al. 2018).

    ValueError for fewer than three axes or more than five, and for fewer outputs than inputs.

    >>> kernel = fnx.nn.initializers.delta_orthogonal()(fnx.random.key(0), (3, 2, 2))
    >>> bool(jnp.allclose(kernel[1] @ kernel[1].T, jnp.eye(2))), float(abs(kernel[0]).sum())
    (True, 0.0)
    """

    def init(key, shape, dtype=dtype, out_sharding=None):
        if len(shape) not in (3, 4, 5) or shape[-1] < shape[-2]:
            raise InvalidValue(
                f"delta_orthogonal of shape {tuple(shape)}; expected 3 to 5 axes, and no fewer "
                "outputs than inputs"
            )
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:], _float(dtype))
        centre = tuple([(n - 1) // 2 for n in shape[:-2]])
        return creation.zeros(shape, _float(dtype)).at[centre].set(matrix)

    return init


__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]
