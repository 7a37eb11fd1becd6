"""Derivatives with respect to sparse arrays, under the name of JAX's module."""

from fnx.experimental.sparse.derivatives import grad, jacfwd, jacobian, jacrev, value_and_grad

__all__ = ["grad", "jacfwd", "jacobian", "jacrev", "value_and_grad"]
