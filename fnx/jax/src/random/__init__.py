"""`jax._src.random`: generators by themselves."""
