"""What `python -m fnx.jax` puts on the path of the Python processes that it starts."""
