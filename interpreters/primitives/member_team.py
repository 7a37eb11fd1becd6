"""Teams: one member's program of `Members`, compiled, and where its parts of arrays lie."""

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.interpreters.exchange import exchanging
from fnx.interpreters.passes.simplify import simplify

# For each axis of an array, the names of the axes of members along which it is cut.
Cut = tuple[tuple[Hashable, ...], ...]
Axes = tuple[tuple[Hashable, int], ...]


def part_shape(shape: Sequence[int], cut: Cut, axes: dict) -> tuple[int, ...]:
    """The shape of a member's part."""
    return tuple([n // prod(axes[a] for a in names) for n, names in zip(shape, cut, strict=True)])


def whole_shape(shape: Sequence[int], cut: Cut, axes: dict) -> tuple[int, ...]:
    """The shape of an array of which members have parts of this shape."""
    return tuple([n * prod(axes[a] for a in names) for n, names in zip(shape, cut, strict=True)])


def names_of(cut: Cut) -> frozenset:
    """The names along which an array is cut."""
    return frozenset([n for names in cut for n in names])


class Running:
    """One member's program, compiled, with what cuts arrays for it."""

    def __init__(self, prim: Any):
        axes = dict(prim.axes)
        small = simplify(prim.jaxpr, final=False)
        call = lambda p: p.as_call() if hasattr(p, "as_call") else p
        jaxpr, partitions, places = exchanging(small, axes, call)
        self.ins = [
            Places(c, axes, whole_shape(a.shape, c, axes))
            for a, c in zip(prim.jaxpr.in_avals, prim.ins)
        ]
        self.outs = [
            (Places(c, axes, whole_shape(a.shape, c, axes)), a.dtype)
            for a, c in zip(prim.jaxpr.out_avals, prim.outs)
        ]
        self.size = prim.size
        results = [(place.shape, dtype.name) for place, dtype in self.outs]
        last = simplify(jaxpr, final=True)
        self.program = prim.backend.team(last, prim.size, partitions, places, results)  # type: ignore

    def run(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [place.parts(x) for place, x in zip(self.ins, values)]
        results = self.program.blank()
        made = [place.targets(x) for (place, _), x in zip(self.outs, results)]
        rows = range(self.size)
        self.program.run(
            [[g[k] for g in given] for k in rows], [[m[k] for m in made] for k in rows]
        )
        for (place, _), x, parts in zip(self.outs, results, made):
            place.collect(x, parts)
        return results


class Places:
    """Where each member's part of an array of one shape lies."""

    def __init__(self, cut: Cut, axes: dict, shape: tuple[int, ...]):
        self.shape = shape
        part = part_shape(shape, cut, axes)
        sizes = list(axes.values())
        names = list(axes)
        self.indices: list[tuple[Any, ...]] = []
        self.owner: list[bool] = []  # who gives a part: the first along axes that are not cut
        for place in np.ndindex(*sizes):
            at = dict(zip(names, place))
            index = []
            for n, along in zip(part, cut):
                k = 0
                for a in along:
                    k = k * axes[a] + at[a]
                index.append(slice(k * n, (k + 1) * n))
            self.indices.append((*index, ...))  # of rank 0, too, a view
            self.owner.append(all(at[n] == 0 for n in names if n not in names_of(cut)))
        # Parts of an array in memory order: cut along its first axis that is not of size 1, if any.
        first = next((k for k, n in enumerate(shape) if n > 1), 0)
        self.is_cut = any(cut)
        self.contiguous = all(not names or k <= first for k, names in enumerate(cut))
        self.part = part

    def parts(self, x: np.ndarray) -> list[np.ndarray]:
        x = np.asarray(x, order="C")
        if not x.flags.aligned:
            x = x.copy()
        if not self.is_cut:
            return [x] * len(self.indices)
        if self.contiguous:
            return [x[i] for i in self.indices]
        return [np.ascontiguousarray(x[i]) for i in self.indices]

    def targets(self, x: np.ndarray) -> list[np.ndarray]:
        """Where members write their parts: into the result itself, or somewhere else."""
        return [
            x[i] if own and self.contiguous else np.empty(self.part, x.dtype)
            for i, own in zip(self.indices, self.owner)
        ]

    def collect(self, x: np.ndarray, parts: list[np.ndarray]) -> None:
        if self.contiguous:
            return
        for i, own, part in zip(self.indices, self.owner, parts):
            if own:
                x[i] = part


__all__ = ["Axes", "Cut", "Places", "Running", "names_of", "part_shape", "whole_shape"]
