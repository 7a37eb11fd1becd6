"""Primitives under JAX's names, as `jax.extend.core.primitives` lists them."""

from typing import Any

from fnx.core import lazy_imports
from fnx.core.primitive import family
from fnx.interpreters.primitives import checkpoint, custom_derivatives
from fnx.interpreters.primitives.jit import Jit
from fnx.interpreters.primitives.user_primitives import Primitive
from fnx.lax.primitives import *  # noqa: F403
from fnx.ops.elementwise.pointwise import add_weak
from fnx.ops.random import prng, sampling
from fnx.transforms.jit import jit

# Those with parameters are families of primitives here: JAX's parameters are their fields.
jit_p = family(Jit)
add_jaxvals_p = add_weak.public  # the sum of two parts of a derivative
custom_jvp_call_p, custom_vjp_call_p = (
    family(custom_derivatives.CustomJVP),
    family(custom_derivatives.CustomVJP),
)

random_bits_p, random_split_p = family(prng.RandomBits), family(prng.RandomSplit)
random_fold_in_p, random_gamma_p = family(prng.RandomFoldIn), family(sampling.RandomGamma)
remat_p, name_p = family(checkpoint.Checkpoint), family(checkpoint.Named)
lazy_imports.add(
    __name__,
    "fnx.lax.linalg",
    "cholesky_p eig_p eigh_p hessenberg_p householder_product_p lu_p qr_p schur_p svd_p "
    "triangular_solve_p tridiagonal_p tridiagonal_solve_p",
)
lazy_imports.add(
    __name__,
    "fnx.lax.composed",
    "after_all_p approx_top_k_p create_token_p device_put_p eq_to_p le_to_p lt_to_p ragged_all_to_all_p "
    "reduce_p reduce_window_p rng_bit_generator_p rng_uniform_p select_and_scatter_p sharding_constraint_p",
)


def __getattr__(name: str) -> Any:
    return lazy_imports.find(__name__, name)


class CallPrimitive(Primitive):
    """JAX's call of a function within a jaxpr: to bind it writes an equation of jit's."""

    multiple_results = True
    call_primitive = True

    def bind(self, *args: Any, **params: Any) -> list[Any]:
        """The results of `subfuns=(f,)`, where f takes arrays and returns a sequence of arrays."""
        (fun,) = params["subfuns"]
        return list(jit(lambda *args: tuple(fun.call_wrapped(*args)))(*args))


call_p, closed_call_p = CallPrimitive("call"), CallPrimitive("closed_call")
