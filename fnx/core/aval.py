"""Abstract values: what is known of an array while it is traced."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import TooLarge


class ShapedArray:
    """Shape, dtype, and whether the dtype yields in promotion (`weak_type`); immutable.

    `vma` are the axes of a mesh along which it varies between members (`VaryingArray`); types that differ
    in it alone are equal.

    >>> ShapedArray((3,), np.dtype("float64"))
    ShapedArray(float64[3])
    """

    __slots__ = ("_hash", "dtype", "shape", "weak_type")
    vma: frozenset = frozenset()

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: Any = None,
        vma: Any = None,
        manual_type: Any = None,
        memory_space: Any = None,
    ):  # the last four are JAX's; what varies over a mesh is another class
        self.shape = shape if type(shape) is tuple else tuple(shape)
        self.dtype = dtype if isinstance(dtype, np.dtype) else dtypes.of_avals(dtype)
        self.weak_type = weak_type
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ShapedArray)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.weak_type == other.weak_type
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.shape, self.dtype, self.weak_type))
        return self._hash

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def update(self, **changes: Any) -> "ShapedArray":
        """A copy with other shape, dtype or weak_type."""
        given: dict[str, Any] = {
            "shape": self.shape,
            "dtype": self.dtype,
            "weak_type": self.weak_type,
        }
        return ShapedArray(**(given | changes))

    def varying(self, names: frozenset) -> "ShapedArray":
        """The same type, which varies along these axes of a mesh, and no others."""
        if names == self.vma:
            return self
        if not names:
            return ShapedArray(self.shape, self.dtype, self.weak_type)
        return VaryingArray(self.shape, self.dtype, self.weak_type, vma=names)

    @property
    def manual_axis_type(self) -> "ManualAxisType":
        """Along which axes of a mesh it varies, under JAX's name."""
        return ManualAxisType(varying=self.vma)

    mat = manual_axis_type

    def strong(self) -> "ShapedArray":
        return ShapedArray(self.shape, self.dtype) if self.weak_type else self

    def tangent(self) -> "ShapedArray":
        """The aval of its tangents: the same, weak types included, as in JAX."""
        return self

    def to_tangent_aval(self) -> "ShapedArray":
        """The same in JAX's interface, where integers have tangents of dtype float0."""
        if dtypes.is_inexact(self.dtype):
            return self.strong()
        return ShapedArray(self.shape, dtypes.float0)

    at_least_vspace = to_tangent_aval
    strip_weak_type = strong

    def like(self, other: "ShapedArray") -> bool:
        """Equal but for weak types."""
        return self.shape == other.shape and self.dtype == other.dtype

    def str_short(self) -> str:
        """As in printed jaxprs: f64[3,4], weak types with a star."""
        name = dtypes.NAME.get(self.dtype, str(self.dtype))
        short = "bf16" if name == "bfloat16" else name
        for long, brief in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
            if short.startswith(long):
                short = brief + short[len(long) :]
                break
        star = "*" if self.weak_type else ""
        return f"{short}[{','.join(map(str, self.shape))}]{star}"

    def __str__(self) -> str:
        return self.str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        name = dtypes.NAME.get(self.dtype, str(self.dtype))
        return f"ShapedArray({name}[{','.join(map(str, self.shape))}]{weak})"


class VaryingArray(ShapedArray):
    """The type of what varies between members of axes of a mesh, while one member's program is traced."""

    __slots__ = ("vma",)

    def __init__(self, shape: Any, dtype: Any, weak_type: bool = False, *, vma: frozenset):
        super().__init__(shape, dtype, weak_type)
        self.vma = vma

    def update(self, **changes: Any) -> ShapedArray:
        """A copy with other shape, dtype or weak_type, which varies likewise."""
        return super().update(**changes).varying(self.vma)

    def strong(self) -> ShapedArray:
        return super().strong().varying(self.vma)

    def __repr__(self) -> str:
        names = ",".join(sorted(map(str, self.vma)))
        return super().__repr__()[:-1] + f", varying over {names})"


class ManualAxisType:
    """Along which axes of a mesh a value inside of `shard_map` varies.

    >>> fnx.sharding.ManualAxisType(varying={"x"}).varying
    frozenset({'x'})
    """

    def __init__(
        self,
        *,
        varying: Iterable[str] = frozenset(),
        unreduced: Iterable[str] = frozenset(),
        reduced: Iterable[str] = frozenset(),
    ):
        self.varying, self.unreduced, self.reduced = map(frozenset, (varying, unreduced, reduced))

    def update(self, **changes: Any) -> "ManualAxisType":
        """The same but for these."""
        return ManualAxisType(**(vars(self) | changes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ManualAxisType) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.varying, self.unreduced, self.reduced))

    def __repr__(self) -> str:
        return f"ManualAxisType({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def check_size(*avals: ShapedArray) -> None:
    """Raise TooLarge for an array whose bytes a signed integer of 64 bits cannot count."""
    for aval in avals:
        if aval.nbytes >= 1 << 63:
            raise too_large(aval)


def too_large(*avals: ShapedArray) -> TooLarge:
    """The error for arrays that find no memory; it speaks of the largest."""
    aval = max(avals, key=lambda a: a.nbytes)
    reason = "more than 63 bits count" if aval.nbytes >= 1 << 63 else "for which there is no memory"
    return TooLarge(
        f"an array of shape {aval.shape} and dtype {dtypes.NAME.get(aval.dtype, aval.dtype)} takes "
        f"{aval.nbytes} bytes, {reason}. Use smaller arrays or batches"
    )
