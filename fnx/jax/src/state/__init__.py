"""`jax._src.state`: mutable references."""
