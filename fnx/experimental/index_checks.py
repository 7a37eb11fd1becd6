"""Looking for indices out of bounds: in compiled programs by checks beside their results."""

from contextlib import AbstractContextManager

from fnx.core import config
from fnx.core.array import Array
from fnx.core.jaxpr import Eqn, Jaxpr, Var, subjaxprs
from fnx.core.primitive import Primitive
from fnx.experimental import checkify
from fnx.interpreters.passes.compiled import run
from fnx.process import nan_checks
from fnx.transforms.traced_program import BACKEND


def _checked(prim: Primitive, args: tuple[Array, ...]) -> tuple[tuple, bool]:
    """The results of a primitive that carries jaxprs, and whether an index in them was out of bounds."""
    owner = next(subjaxprs(prim))
    avals = tuple([a.aval for a in args])

    def make() -> Jaxpr:
        inputs = [Var(a) for a in avals]
        outs = [Var(a) for a in prim.abstract(*avals)]
        jaxpr = Jaxpr(inputs, [Eqn(prim, inputs, outs)], outs, name=prim.name)
        return checkify.functional(jaxpr, checkify.mistaken_index_checks)[0]

    program = owner.once(("index checks", prim, avals), make)
    n = len(prim.abstract(*avals))
    *outs, code = run(program, BACKEND, args)[: n + 1]
    return tuple(outs), bool(code)


nan_checks.index_checks.append(_checked)


def debug_index(new_val: bool = True) -> AbstractContextManager[None]:
    """Within it, an index out of bounds raises IndexError, which names its line and the iteration.

    Otherwise such an index is clamped, or its element dropped, as in JAX. A mode that says so ("drop",
    "fill", "clip") is taken at its word. Compiled functions run with checks beside their results; where
    one fails they run again step by step.

    >>> with fnx.debug_index():  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     fnx.jit(lambda x, k: x[k])(jnp.ones(3), 5)
    Traceback (most recent call last):
    fnx.process.watching.indices.OutOfBounds: the operation gather has index 5 out of bounds
    """
    return nan_checks.looking(config.debug_index, new_val)


__all__ = ["debug_index"]
