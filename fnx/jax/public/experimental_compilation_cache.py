"""`jax.experimental.compilation_cache`: code that is kept on disk."""
