"""Images resized, scaled and moved."""

import enum
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from fnx import numpy as jnp
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.arrays.util import canonical_axis, canonical_shape, promote_inexact, to_array


class ResizeMethod(enum.Enum):
    """How pixels are interpolated.

    >>> fnx.image.resize(jnp.array([1.0, 2.0]), (4,), fnx.image.ResizeMethod.NEAREST)
    Array([1., 1., 2., 2.], dtype=float64)
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> "ResizeMethod":
        """The method of a name; 'bilinear', 'trilinear', 'triangle' are linear, 'bicubic' is cubic."""
        names = {m.name.lower().replace("_", "-"): m for m in ResizeMethod}
        names["bicubic-pytorch"] = ResizeMethod.CUBIC_PYTORCH
        names |= dict.fromkeys(("bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR)
        names |= dict.fromkeys(("bicubic", "tricubic"), ResizeMethod.CUBIC)
        if s not in names:
            raise InvalidValue(f"unknown resize method {s!r}; expected one of {', '.join(names)}")
        return names[s]


# --- kernels: functions of the distance from a pixel -------------------------------------------


def _triangle(x: Any, xp: ModuleType) -> Any:
    return xp.maximum(0.0, 1.0 - x)


def _lanczos(radius: int) -> Callable:
    def kernel(x: Any, xp: ModuleType) -> Any:
        inner = xp.sinc(x) * xp.sinc(x / radius)
        return xp.where(x > radius, 0.0, inner)

    return kernel


def _cubic(x: Any, xp: ModuleType) -> Any:
    """Keys (1981) with a = -1/2."""
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return xp.where(x >= 2.0, 0.0, xp.where(x >= 1.0, far, near))


def _cubic_pytorch(x: Any, xp: ModuleType) -> Any:
    """Keys with a = -3/4, which PyTorch and OpenCV have without antialiasing."""
    near = ((1.25 * x - 2.25) * x) * x + 1.0
    far = ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0
    return xp.where(x >= 2.0, 0.0, xp.where(x >= 1.0, far, near))


_KERNELS = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3),
    ResizeMethod.LANCZOS5: _lanczos(5),
    ResizeMethod.CUBIC: _cubic,
    ResizeMethod.CUBIC_PYTORCH: _cubic_pytorch,
}
_EDGE = 2  # pixels beyond the edges, equal to those at them, that CUBIC_PYTORCH sees


def _weights(
    size: int,
    wanted: int,
    scale: Any,
    shift: Any,
    method: ResizeMethod,
    antialias: bool,
    xp: ModuleType,
) -> Any:
    """The share of each pixel (row) in each result (column), in NumPy or in fnx."""
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    edge = _EDGE if method is ResizeMethod.CUBIC_PYTORCH else 0
    step = 1.0 / scale
    width = xp.maximum(step, 1.0) if antialias else 1.0
    places = (np.arange(wanted) + 0.5) * step - shift * step - 0.5
    offset = places[None, :] - np.arange(-edge, size + edge, dtype=float)[:, None]
    if method is ResizeMethod.AREA:  # of the pixel's cell and the result's, what they share
        half = 0.5 * step
        weights = xp.maximum(xp.minimum(offset + half, 0.5) - xp.maximum(offset - half, -0.5), 0.0)
    else:
        weights = _KERNELS[method](xp.abs(offset) / width, xp)
    if edge:
        first = xp.sum(weights[: edge + 1], axis=0, keepdims=True)
        last = xp.sum(weights[size + edge - 1 :], axis=0, keepdims=True)
        whole = xp.sum(weights, axis=0, keepdims=True)
        ends = [whole] if size == 1 else [first, weights[edge + 1 : size + edge - 1], last]
        weights = xp.concatenate(ends)
    total = xp.sum(weights, axis=0, keepdims=True)
    small = 1000.0 * float(np.finfo(np.float32).eps)
    good = xp.abs(total) > small
    weights = xp.where(good, weights / xp.where(good, total, 1.0), 0.0)
    inside = xp.logical_and(places >= -0.5, places <= size - 0.5)
    return xp.where(inside[None, :], weights, 0.0)


def _applied(x: Array, axes: Sequence[int], weights: Sequence[Any]) -> Array:
    for axis, w in zip(axes, weights):
        w = jnp.asarray(w).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, w, axes=((axis,), (0,))), -1, axis)
    return x


def resize(image, shape, method, antialias=True, precision=None):
    """The image in another shape, by `method`.

    Methods are 'nearest', 'linear', 'cubic', 'cubic-pytorch', 'lanczos3', 'lanczos5' and 'area'.

    With `antialias`, kernels are widened when an axis becomes smaller.
    Integers become floats, but with 'nearest'.

    ShapeError for a shape of another rank; ValueError for an unknown method.

    >>> fnx.image.resize(np.array([[0.0, 1.0]]), (1, 4), "linear")
    Array([[0.  , 0.25, 0.75, 1.  ]], dtype=float64)
    """
    del precision
    shape = canonical_shape(shape)
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    x = to_array(image, "resize")
    if len(shape) != x.ndim:
        raise ShapeError(f"resize of shape {x.shape} to {shape}; expected equal ranks")
    if method is ResizeMethod.NEAREST:
        for k, n in enumerate(shape):
            m = x.shape[k]
            if m != n:
                places = np.floor((np.arange(n, dtype=np.float32) + 0.5) * m / n).astype(np.int32)
                x = jnp.take(x, places, axis=k)
        return x
    (x,) = promote_inexact("resize", x)
    axes = [k for k, n in enumerate(shape) if n != x.shape[k]]
    weights = []
    for k in axes:
        if not x.shape[k] or not shape[k]:
            weights.append(np.zeros((x.shape[k], shape[k])))
            continue
        scale = np.float64(shape[k] / x.shape[k])
        weights.append(_weights(x.shape[k], shape[k], scale, 0.0, method, antialias, np))
    return _applied(x, axes, weights)


def scale_and_translate(
    image, shape, spatial_dims, scale, translation, method, antialias=True, precision=None
):
    """Results at i show the image at (i - translation) / scale, along each of the `spatial_dims`.

    `scale` and `translation` are vectors that may be traced; pixels from outside are 0.

    ShapeError for a shape of another rank, and where numbers and `spatial_dims` differ in
    length; ValueError for method 'nearest'.

    >>> line, double, by = jnp.array([1.0, 2.0]), jnp.array([2.0]), jnp.array([0.0])
    >>> fnx.image.scale_and_translate(line, (4,), (0,), double, by, "linear")
    Array([1.  , 1.25, 1.75, 2.  ], dtype=float64)
    """
    del precision
    shape = canonical_shape(shape)
    if isinstance(method, str):
        method = ResizeMethod.from_string(method)
    if method is ResizeMethod.NEAREST:
        raise InvalidValue(
            "scale_and_translate has no method 'nearest'; expected 'linear' or another"
        )
    (x,) = promote_inexact("scale_and_translate", image)
    if len(shape) != x.ndim:
        raise ShapeError(f"scale_and_translate of shape {x.shape} to {shape}; expected equal ranks")
    axes = [canonical_axis(k, x.ndim) for k in spatial_dims]
    fixed = [k for k in range(x.ndim) if k not in axes]
    if any(shape[k] != x.shape[k] for k in fixed):
        raise ShapeError(
            f"scale_and_translate of shape {x.shape} to {shape} along axes {axes}; expected the other "
            "axes to stay"
        )
    wide = jnp.result_type(float)
    scale, translation = (to_array(z, "scale").astype(wide) for z in (scale, translation))
    if scale.shape != (len(axes),) or translation.shape != (len(axes),):
        raise ShapeError(
            f"scale of shape {scale.shape} and translation of {translation.shape}; expected a number "
            f"for each of the {len(axes)} axes"
        )
    weights = [
        _weights(x.shape[k], shape[k], scale[j], translation[j], method, antialias, jnp)
        for j, k in enumerate(axes)
    ]
    return _applied(x, axes, weights)


__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
