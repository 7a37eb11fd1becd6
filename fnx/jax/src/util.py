"""`jax._src.util`: lists and axes, as interpreters of jaxprs take them apart and put them together."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core.errors import InvalidValue
from fnx.extend.flat_functions import safe_map as safe_map  # JAX's documentation, oryx
from fnx.numpy.arrays.util import canonical_axis as canonicalize_axis  # copies of JAX's scipy

__all__ = ["canonicalize_axis", "safe_map"]


def safe_zip(*args: Iterable) -> list[tuple]:  # oryx, programs with mujoco-mjx
    """Tuples of the first, the second, ... of each; ValueError for different lengths."""
    return list(zip(*args, strict=True))


def unzip2(pairs: Iterable) -> tuple[tuple, tuple]:  # oryx, programs with mujoco-mjx
    """The firsts and the seconds of pairs."""
    both = [(first, second) for first, second in pairs]
    return tuple([first for first, _ in both]), tuple([second for _, second in both])


def split_list(args: Sequence, ns: Sequence[int]) -> list[list]:  # oryx
    """Parts of the lengths `ns`, and what is left."""
    cuts = [0, *itertools.accumulate(ns)]
    return [*(list(args[a:b]) for a, b in itertools.pairwise(cuts)), list(args[cuts[-1] :])]


def partition_list(bs: Sequence[bool], l: Sequence) -> tuple[list, list]:  # interpreters of users
    """What is not marked, and what is."""
    marked = list(zip(bs, l, strict=True))
    return [x for b, x in marked if not b], [x for b, x in marked if b]


def merge_lists(bs: Sequence[bool], l0: Sequence, l1: Sequence) -> list:  # interpreters of users
    """The list of which `partition_list` made the two."""
    if (len(l0), len(l1)) != (len(bs) - sum(bs), sum(bs)):
        raise InvalidValue(
            f"{sum(bs)} of {len(bs)} places are marked; got {len(l1)} values for these and {len(l0)} others"
        )
    sources = iter(l0), iter(l1)
    return [next(sources[bool(b)]) for b in bs]


def tuple_insert(t: tuple, idx: int, val: Any) -> tuple:  # copies of JAX's scipy
    """The tuple with a value before position `idx`."""
    _check_place(idx, len(t) + 1)
    return (*t[:idx], val, *t[idx:])


def tuple_delete(t: tuple, idx: int) -> tuple:  # copies of JAX's scipy
    """The tuple without its value at `idx`."""
    _check_place(idx, len(t))
    return t[:idx] + t[idx + 1 :]


def _check_place(idx: int, count: int) -> None:
    if not 0 <= idx < count:
        raise InvalidValue(f"position {idx} is none of the {count} there are")
