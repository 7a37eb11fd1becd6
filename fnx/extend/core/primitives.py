"""Primitives under JAX's names, as `jax.extend.core.primitives` lists them."""

from fnx.core.primitive import family
from fnx.interpreters.primitives import custom_derivatives, jit
from fnx.interpreters.primitives.user_primitives import Primitive
from fnx.lax.primitives import *  # noqa: F403

# Those with parameters are families of primitives here: JAX's parameters are their fields.
jit_p = family(jit.Jit)
custom_jvp_call_p, custom_vjp_call_p = (
    family(custom_derivatives.CustomJVP),
    family(custom_derivatives.CustomVJP),
)


class CallPrimitive(Primitive):
    """A call of a function within a jaxpr, of JAX's: equations of fnx are jit's, and never these."""

    call_primitive = True


call_p, closed_call_p = CallPrimitive("call"), CallPrimitive("closed_call")
