"""JAX's public modules that have no place of their own in fnx, their paths with `_` for each dot."""
