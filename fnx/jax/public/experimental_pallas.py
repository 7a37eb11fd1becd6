"""`jax.experimental.pallas`, which has nothing: kernels written for accelerators are not run.

jax-md and others import it for functions that they may do without.
"""
