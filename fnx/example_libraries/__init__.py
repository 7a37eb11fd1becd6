"""Small libraries for examples: `optimizers` and `stax`, as programs for JAX import them."""
