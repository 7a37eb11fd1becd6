"""Modules that stand for `jax._src`, `jaxlib` and JAX's root; each name with the library that needs it."""
