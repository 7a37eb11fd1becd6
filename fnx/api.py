"""The transformations in one place, for the modules of the roof that build on them."""

from fnx.derivatives import grad, jvp, linear_transpose, linearize, value_and_grad, vjp
from fnx.flat import aval_like, flatten_arrays, name_of, signature_of
from fnx.jacobians import hessian, jacfwd, jacobian, jacrev
from fnx.lanes import vmap
from fnx.staging import ShapeDtypeStruct, eval_shape, make_jaxpr

__all__ = [
    "ShapeDtypeStruct",
    "aval_like",
    "eval_shape",
    "flatten_arrays",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_jaxpr",
    "name_of",
    "signature_of",
    "value_and_grad",
    "vjp",
    "vmap",
]
