"""Rotations of space as unit quaternions, and interpolation between them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx import random
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.pytree.operations import register_pytree_node

__all__ = ["Rotation", "Slerp"]

SMALL = 1e-3  # angles below it go by series


class Rotation:
    """A rotation, or several along axis 0, by unit quaternions (x, y, z, w); a pytree.

    >>> from fnx.scipy.spatial.transform import Rotation
    >>> quarter = Rotation.from_euler("z", 90, degrees=True)
    >>> jnp.round(quarter.apply(jnp.array([1.0, 0.0, 1.0])) + 1.0, 6)
    Array([1., 2., 2.], dtype=float64)
    """

    def __init__(self, quat: Any):
        self.quat = quat

    @property
    def single(self) -> bool:
        """Whether it is one rotation."""
        return self.quat.ndim == 1

    # --- from other forms ---------------------------------------------------------------------------

    @classmethod
    def concatenate(cls, rotations: Sequence["Rotation"]) -> "Rotation":
        """All rotations of a sequence, one after the other."""
        return cls(jnp.concatenate([jnp.atleast_2d(r.quat) for r in rotations]))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> "Rotation":
        """The rotation that moves nothing."""
        quat = jnp.array([0, 0, 0, 1], dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None, dtype: Any = float) -> "Rotation":
        """Rotations drawn uniformly."""
        shape = (4,) if num is None else (num, 4)
        return cls.from_quat(random.normal(random_key, shape, dtype))

    @classmethod
    def from_quat(cls, quat: Any) -> "Rotation":
        """Of quaternions (x, y, z, w), which are normalised."""
        quat = _floats(quat)
        return cls(quat / jnp.linalg.norm(quat, axis=-1, keepdims=True))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> "Rotation":
        """Of vectors along the axis, whose length is the angle."""
        v = _floats(rotvec)
        v = jnp.deg2rad(v) if degrees else v
        square = jnp.sum(v * v, -1, keepdims=True)
        small = square <= SMALL**2
        angle = jnp.sqrt(jnp.where(small, 1, square))
        series = 0.5 - square / 48 + square**2 / 3840
        scale = jnp.where(small, series, jnp.sin(angle / 2) / angle)
        w = jnp.where(small, 1 - square / 8 + square**2 / 384, jnp.cos(angle / 2))
        return cls(jnp.concatenate([v * scale, w], -1))

    @classmethod
    def from_mrp(cls, mrp: Any) -> "Rotation":
        """Of modified Rodrigues parameters: the axis times the tangent of a quarter of the angle."""
        v = _floats(mrp)
        square = jnp.sum(v * v, -1, keepdims=True)
        return cls(jnp.concatenate([2 * v, 1 - square], -1) / (1 + square))

    @classmethod
    def from_matrix(cls, matrix: Any) -> "Rotation":
        """Of orthogonal matrices with determinant 1."""
        m = _floats(matrix)
        diagonal = jnp.diagonal(m, axis1=-2, axis2=-1)
        trace = jnp.sum(diagonal, -1)
        sums = [[m[..., i, j] + m[..., j, i] for j in range(3)] for i in range(3)]
        turns = [
            m[..., (k + 2) % 3, (k + 1) % 3] - m[..., (k + 1) % 3, (k + 2) % 3] for k in range(3)
        ]
        # Four times q times each of its components; the one with the largest is the most precise.
        rows = [
            [1 + 2 * m[..., k, k] - trace if j == k else sums[k][j] for j in range(3)] + [turns[k]]
            for k in range(3)
        ]
        rows.append([*turns, 1 + trace])
        candidates = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
        best = jnp.argmax(jnp.concatenate([diagonal, trace[..., None]], -1), -1)
        quat = jnp.take_along_axis(candidates, best[..., None, None], -2)[..., 0, :]
        return cls.from_quat(quat)

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> "Rotation":
        """Of angles about axes: "xyz" about the axes of space, "XYZ" about those that turn along."""
        axes, extrinsic = _axes(seq)
        angles = _floats(angles)
        angles = jnp.deg2rad(angles) if degrees else angles
        if len(axes) == 1 and (angles.ndim == 0 or angles.shape[-1] != 1):
            angles = angles[..., None]
        if angles.shape[-1:] != (len(axes),):
            raise InvalidValue(
                f"from_euler({seq!r}) of angles of shape {angles.shape}; expected {len(axes)} in the last "
                "axis"
            )
        total = None
        for k, axis in enumerate(axes):
            half = angles[..., k] / 2
            parts = [jnp.zeros_like(half)] * 3 + [jnp.cos(half)]
            parts[axis] = jnp.sin(half)
            turn = cls(jnp.stack(parts, -1))
            total = turn if total is None else turn * total if extrinsic else total * turn
        return total  # type: ignore[return-value]

    # --- other forms --------------------------------------------------------------------------------

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Quaternions (x, y, z, w), or (w, x, y, z); the `canonical` ones have w >= 0."""
        quat = _canonical(self.quat) if canonical else self.quat
        return jnp.roll(quat, 1, -1) if scalar_first else quat

    def as_matrix(self) -> Array:
        """Orthogonal matrices."""
        x, y, z, w = (self.quat[..., k] for k in range(4))
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        return jnp.stack([jnp.stack(row, -1) for row in rows], -2)

    def as_rotvec(self, degrees: bool = False) -> Array:
        """Vectors along the axes, whose lengths are the angles, at most pi."""
        quat = _canonical(self.quat)
        v, w = quat[..., :3], quat[..., 3:]
        square = jnp.sum(v * v, -1, keepdims=True)
        small = square <= SMALL**2 / 4
        length = jnp.sqrt(jnp.where(small, 1, square))
        series = 2 + square / 3 + 3 * square**2 / 20  # 2 asin(s) / s
        scale = jnp.where(small, series, 2 * jnp.arctan2(length, w) / length)
        return jnp.rad2deg(v * scale) if degrees else v * scale

    def as_mrp(self) -> Array:
        """Modified Rodrigues parameters."""
        quat = _canonical(self.quat)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Three angles about axes, as `from_euler` takes them."""
        axes, extrinsic = _axes(seq)
        if len(axes) != 3:
            raise InvalidValue(f"as_euler({seq!r}); expected three axes")
        i, j, k = axes if extrinsic else axes[::-1]
        same = i == k
        k = 3 - i - j if same else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = [self.quat[..., n] for n in range(4)]
        a, b, c, d = q[3], q[i], q[j], q[k] * sign
        if not same:
            a, b, c, d = a - c, b + d, c + a, d - b
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
        flat, turned = middle <= 1e-7, middle >= np.pi - 1e-7
        lost = flat | turned  # only a sum or a difference of the others is known
        alone = 2 * jnp.where(flat, half_sum, -half_difference if extrinsic else half_difference)
        low = jnp.where(lost, alone if extrinsic else 0, half_sum - half_difference)
        high = jnp.where(lost, 0 if extrinsic else alone, half_sum + half_difference)
        if not same:
            high, middle = high * sign, middle - np.pi / 2
        outer = (low, middle, high) if extrinsic else (high, middle, low)
        angles = jnp.stack(outer, -1)
        angles = jnp.where(angles > np.pi, angles - 2 * np.pi, angles)
        angles = jnp.where(angles < -np.pi, angles + 2 * np.pi, angles)
        return jnp.rad2deg(angles) if degrees else angles

    # --- what rotations do ----------------------------------------------------------------------------

    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """Vectors, rotated."""
        matrix = (self.inv() if inverse else self).as_matrix()
        return jnp.einsum("...ij,...j->...i", matrix, _floats(vectors))

    def __mul__(self, other: "Rotation") -> "Rotation":
        """First the other rotation, then this one."""
        p, q = self.quat, other.quat
        v, u, a, b = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
        vector = a * u + b * v + jnp.cross(v, u)
        quat = jnp.concatenate([vector, a * b - jnp.sum(v * u, -1, keepdims=True)], -1)
        return Rotation.from_quat(quat)

    def inv(self) -> "Rotation":
        """The rotation that undoes it."""
        return Rotation(self.quat * jnp.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Array:
        """The angles."""
        return 2 * jnp.arctan2(
            jnp.linalg.norm(self.quat[..., :3], axis=-1), jnp.abs(self.quat[..., 3])
        )

    def mean(self, weights: Any = None) -> "Rotation":
        """The rotation that is nearest to all."""
        quat = jnp.atleast_2d(self.quat)
        w = jnp.ones(len(quat), quat.dtype) if weights is None else _floats(weights)
        _, vectors = jnp.linalg.eigh(jnp.einsum("n,ni,nj->ij", w, quat, quat))
        return Rotation(vectors[:, -1])

    def __getitem__(self, index: Any) -> "Rotation":
        if self.single:
            raise TypeError("a single rotation has no parts")
        return Rotation(self.quat[index])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("a single rotation has no length")
        return self.quat.shape[0]

    def __repr__(self) -> str:
        return f"Rotation({self.quat!r})"


class Slerp:
    """Rotations at times in between, at a constant speed from each to the next; a pytree.

    >>> from fnx.scipy.spatial.transform import Rotation, Slerp
    >>> ends = Rotation.from_euler("z", jnp.array([0.0, 90.0]), degrees=True)
    >>> between = Slerp.init(jnp.array([0.0, 1.0]), ends)
    >>> jnp.round(between(0.5).as_euler("xyz", degrees=True), 6)
    Array([ 0.,  0., 45.], dtype=float64)
    """

    def __init__(self, times: Any, timedelta: Any, rotations: Rotation, rotvecs: Any):
        self.times, self.timedelta = times, timedelta
        self.rotations, self.rotvecs = rotations, rotvecs

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> "Slerp":
        """Of increasing times, and the rotations there."""
        times = jnp.asarray(times, rotations.quat.dtype)
        if rotations.single or len(rotations) < 2:
            raise InvalidValue("Slerp of one rotation; expected at least two")
        if times.shape != (len(rotations),):
            raise InvalidValue(
                f"Slerp of {len(rotations)} rotations at times of shape {times.shape}; expected as many"
            )
        steps = rotations[:-1].inv() * rotations[1:]
        return cls(times, jnp.diff(times), rotations[:-1], steps.as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        times = jnp.asarray(times, self.times.dtype)
        at = jnp.searchsorted(self.times, times, side="right") - 1
        at = jnp.clip(at, 0, len(self.rotations) - 1)
        part = (times - self.times[at]) / self.timedelta[at]
        return self.rotations[at] * Rotation.from_rotvec(self.rotvecs[at] * part[..., None])


def _floats(x: Any) -> Array:
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)


def _canonical(quat: Array) -> Array:
    """Of a quaternion and its negative, which rotate alike, the one with the first sign: w, x, y, z."""
    x, y, z, w = (quat[..., k] for k in range(4))
    tie = lambda first, rest: (first < 0) | ((first == 0) & rest)
    negative = tie(w, tie(x, tie(y, z < 0)))
    return jnp.where(negative[..., None], -quat, quat)


def _axes(seq: str) -> tuple[list[int], bool]:
    """Numbers of axes, and whether they are those of space."""
    extrinsic = seq.islower()
    axes = ["xyz".find(c) for c in seq.lower()]
    if not 1 <= len(axes) <= 3 or -1 in axes or not (extrinsic or seq.isupper()):
        raise InvalidValue(f"axes {seq!r}; expected one to three of 'xyz', or of 'XYZ'")
    if any(a == b for a, b in pairwise(axes)):
        raise InvalidValue(f"axes {seq!r}; expected neighbours that differ")
    return axes, extrinsic


register_pytree_node(Rotation, lambda r: ((r.quat,), None), lambda _, parts: Rotation(*parts))
register_pytree_node(
    Slerp,
    lambda s: ((s.times, s.timedelta, s.rotations, s.rotvecs), None),
    lambda _, parts: Slerp(*parts),
)
