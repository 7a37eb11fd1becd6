"""How compiled programs compute users' primitives, under the names of JAX's module."""

from collections.abc import Callable
from typing import Any

from fnx.interpreters.primitives.user_primitives import LoweredFun, lowerings


def lower_fun(fun: Callable, multiple_results: bool = True) -> LoweredFun:
    """A lowering for `register_lowering`, from a function of arrays, and parameters by name."""
    return LoweredFun(fun, multiple_results)


def register_lowering(
    prim: Any, rule: Any, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> Any:
    """Say how programs compute a primitive: `rule` is what `lower_fun` gave.

    A rule of another kind writes MLIR, which fnx does not: programs then call the primitive's `impl`.
    """
    del inline, cacheable
    if platform in (None, "cpu"):
        lowerings[prim] = rule
    return rule
