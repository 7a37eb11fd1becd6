"""`jax.experimental.pallas.ops`, which has nothing, as `jax.experimental.pallas` says."""  # keras
