"""Part of `jax.experimental.pallas.ops.tpu.splash_attention`, which has nothing."""  # keras
