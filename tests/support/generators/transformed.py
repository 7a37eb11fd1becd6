"""What is made of random programs: those of several members, and gradients."""

import fnx
import fnx.numpy as jnp


def members(f, args):
    """The program of three members, each with numbers of its own."""
    return fnx.vmap(f), [jnp.stack([a * (1.0 - 0.3 * k) for k in range(3)]) for a in args]


def gradients(f, args):
    """The gradients of a number that depends on all results."""
    loss = lambda *xs: sum(jnp.sum(jnp.tanh(y) * y) for y in f(*xs))
    return fnx.grad(loss, argnums=tuple(range(len(args)))), args


def gradients_of_members(f, args):
    """The gradients of each member."""
    return members(*gradients(f, args))


MADE = {f.__name__: f for f in (members, gradients, gradients_of_members)}
