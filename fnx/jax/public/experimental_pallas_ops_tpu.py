"""`jax.experimental.pallas.ops.tpu`, which has nothing: kernels for TPUs are not run."""  # keras
