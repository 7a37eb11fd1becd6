"""`jax.experimental.pallas.triton`, which has nothing, as `jax.experimental.pallas` says."""  # jax-md
