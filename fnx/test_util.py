"""Derivatives against finite differences, a module path of JAX."""

from fnx.transforms.numerical_check import (
    check_grads,
    check_jvp,
    check_vjp,
    numerical_jvp,
)

__all__ = [
    "check_grads",
    "check_jvp",
    "check_vjp",
    "numerical_jvp",
]
