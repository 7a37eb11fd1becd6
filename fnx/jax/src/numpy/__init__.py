"""`jax._src.numpy`: what functions of `jax.numpy` are written with."""
