"""What backends share whose programs are native functions behind one loader: their types, and calls.

A process that recalls its programs from disk imports this, and none of the passes.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from fnx.core import dtypes, policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import TooLarge
from fnx.core.jaxpr import Jaxpr

Spec = tuple[tuple[int, ...], str, bool]  # shape, dtype's name, whether its type is weak
Types = tuple[list[Spec], list[Spec]]  # of inputs, of results


def types_of(jaxpr: Jaxpr) -> Types:
    """The types of a program's inputs and results."""
    return [_spec(v.aval) for v in jaxpr.inputs], [_spec(v.aval) for v in jaxpr.outs]


def _spec(aval: ShapedArray) -> Spec:
    return aval.shape, dtypes.NAME[aval.dtype], aval.weak_type


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Long chains of fused equations are nested calls; Python's own frames need no C stack."""
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(max(before, 50_000))
        yield
    finally:
        sys.setrecursionlimit(before)


def donating(
    run: Callable, types: Types, aliases: Mapping[int, int], replaced: Mapping[int, int]
) -> Callable:
    """The quickest call of a program, after which donated arguments are gone."""
    if not aliases and not replaced:
        return run
    from .donation import calling

    weak = [weak_type for *_, weak_type in types[1]]
    return calling(run, aliases, replaced, _moved(types, aliases, replaced), weak)


def _moved(types: Types, aliases: Mapping[int, int], replaced: Mapping[int, int]) -> dict[int, int]:
    """Results that are copied to the memory of small donated inputs, which no result aliases."""
    inputs, outs = types
    return {
        j: k
        for k, j in replaced.items()
        if j not in aliases and k not in aliases.values()
        and inputs[k][:2] == outs[j][:2] and prod(inputs[k][0]) <= policy.SMALL
    }  # fmt: skip


def called(compiled: Any, types: Types, args: Sequence[Array]) -> list[Array]:
    """The results of a program, for arguments that are made to fit where they do not."""
    outs = compiled.fast(args)
    if outs is NotImplemented:
        values = compiled.executable.fitting([x._value for x in args])  # type: ignore[attr-defined]
        fitting = [ConcreteArray(v, weak) for v, (*_, weak) in zip(values, types[0], strict=True)]
        outs = compiled.fast(fitting)
    return outs


def no_memory(size: int, largest: str = "") -> TooLarge:
    """The error of a program whose workspace finds no memory."""
    parts = f"; the largest parts of it are {largest}" if largest else ""
    return TooLarge(
        f"a program needs {size} bytes of work memory, which cannot be had{parts}. Use smaller arrays "
        "or batches, or fnx.checkpoint for parts of it"
    )
