"""`jax._src.compiler`: chex looks here for what compiles for one of XLA's backends, and finds nothing."""
