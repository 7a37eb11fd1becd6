"""Calls of Python functions from within programs, on NumPy arrays."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import are_devices
from fnx.core.errors import JaxRuntimeError, MissingRule, ShapeError, of_both
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.primitive import Primitive
from fnx.core.recipe import Host, Operand, Recipe
from fnx.ops.base.broadcast import broadcast_axis
from fnx.ops.base.permute import move_axis

METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


@dataclass(frozen=True)
class Callback(Primitive):
    """`fn(*arrays)` gives a sequence of arrays of the types `results`.

    `vmap_method` says how vmap calls it: once per element, or once with a leading axis (of size 1, or
    repeated, on operands without a batch axis). `effects`: it runs although nobody uses its results, once
    for each time that the program comes to it. `silent`: its operands' tangents are ignored.
    """

    fn: Callable[..., Sequence] = field(repr=False)
    results: tuple[ShapedArray, ...]
    name: str = "pure_callback"
    vmap_method: str | None = None
    effects: bool = False
    silent: bool = False
    multiple_results = True

    @property
    def acts(self) -> bool:  # type: ignore[override]
        return self.effects and not self.silent

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self.results

    def impl(self, *values: np.ndarray) -> tuple:
        with use(evaluate):  # it may call fnx, whatever is being transformed around it
            given = self.fn(*values)
        return tuple([self._checked(x, a) for x, a in zip(given, self.results, strict=True)])

    def _checked(self, x: object, aval: ShapedArray) -> np.ndarray:
        array = np.asarray(x)
        if array.shape != aval.shape:
            raise of_both(
                ShapeError,
                JaxRuntimeError,
                f"the function of a {self.name} returned an array of shape {array.shape}; declared was "
                f"{aval.str_short()}",
            )
        if array.dtype != aval.dtype and dtypes.taken(array.dtype) != aval.dtype:
            raise of_both(
                ShapeError,
                JaxRuntimeError,
                f"the function of a {self.name} returned an array of dtype {array.dtype}; declared was "
                f"{aval.str_short()}",
            )
        return np.array(array, aval.dtype, order="C")

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        if not self.silent:
            raise self._no_derivative()
        return self.apply(*primals), (None,) * len(self.results)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        raise self._no_derivative()

    def _no_derivative(self) -> Exception:
        return of_both(
            MissingRule,
            ValueError,
            f"a {self.name} has no derivative: fnx cannot look into the Python function. Wrap the call "
            "in fnx.custom_jvp or fnx.custom_vjp with a rule, or in lax.stop_gradient.",
        )

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        method = self.vmap_method
        if method is None and are_devices(size):
            method = "sequential"  # each device of a pmap calls for itself
        if method is None:
            raise MissingRule(
                f"vmap of a {self.name} needs to know how to call the function: pass vmap_method, one of "
                f"{', '.join(METHODS)}"
            )
        moved = [x if k is None else move_axis(x, k, 0) for x, k in zip(args, axes)]
        mapped = tuple([k is not None for k in axes])
        wide = tuple([a.update(shape=(size, *a.shape)) for a in self.results])
        if method.startswith("sequential"):
            outs = replace(self, fn=_EachElement(self.fn, size, mapped), results=wide).apply(*moved)
        else:
            rows = {"expand_dims": 1, "broadcast_all": size}.get(method)
            if rows is not None:
                moved = [x if m else broadcast_axis(x, rows, 0) for x, m in zip(moved, mapped)]
            outs = replace(self, results=wide).apply(*moved)
        return outs, (0,) * len(outs)

    def lower(self, *operands: Operand) -> Recipe:
        return Host()


@dataclass(frozen=True)
class _EachElement:
    """A function called for one batch element after the other; results have the batch axis in front."""

    fn: Callable[..., Sequence]
    size: int
    mapped: tuple[bool, ...]

    def __call__(self, *values: np.ndarray) -> list:
        elements = [
            self.fn(*[v[i] if m else v for v, m in zip(values, self.mapped)])
            for i in range(self.size)
        ]
        return [np.stack([np.asarray(x) for x in column]) for column in zip(*elements)]
