"""What libraries that add to JAX import from `jax.extend`: new primitives, and jaxprs to read."""

from fnx.extend import core as core
