"""`jax.interpreters.pxla`, which has nothing: executables of XLA's are not made."""  # orbax
