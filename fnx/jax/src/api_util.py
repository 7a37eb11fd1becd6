"""`jax._src.api_util`: what the public module has, and arguments by number and by name."""

import inspect
from typing import Any

from fnx.api_util import *
from fnx.transforms.static_args import integers, strings


def infer_argnums_and_argnames(  # e3nn-jax
    sig: inspect.Signature, argnums: Any, argnames: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Numbers and names of the arguments that either of them means; if both are given, as they are."""
    numbers, names = integers(argnums, "argnums"), strings(argnames, "argnames")
    either = [p.name if p.kind is p.POSITIONAL_OR_KEYWORD else "" for p in sig.parameters.values()]
    if argnums is None:
        return tuple([k for k, name in enumerate(either) if name and name in names]), names
    if argnames is None:
        return numbers, tuple([n for k, n in enumerate(either) if n and k in numbers])
    return numbers, names
