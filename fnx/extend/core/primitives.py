"""Primitives under JAX's names, as `jax.extend.core.primitives` lists them."""

from typing import Any

from fnx.core.primitive import family
from fnx.interpreters.primitives import custom_derivatives
from fnx.interpreters.primitives.jit import Jit
from fnx.interpreters.primitives.user_primitives import Primitive
from fnx.lax.primitives import *  # noqa: F403
from fnx.transforms.jit import jit

# Those with parameters are families of primitives here: JAX's parameters are their fields.
jit_p = family(Jit)
custom_jvp_call_p, custom_vjp_call_p = (
    family(custom_derivatives.CustomJVP),
    family(custom_derivatives.CustomVJP),
)


class CallPrimitive(Primitive):
    """JAX's call of a function within a jaxpr: to bind it writes an equation of jit's."""

    multiple_results = True
    call_primitive = True

    def bind(self, *args: Any, **params: Any) -> list[Any]:
        """The results of `subfuns=(f,)`, where f takes arrays and returns a sequence of arrays."""
        (fun,) = params["subfuns"]
        return list(jit(lambda *args: tuple(fun.call_wrapped(*args)))(*args))


call_p, closed_call_p = CallPrimitive("call"), CallPrimitive("closed_call")
