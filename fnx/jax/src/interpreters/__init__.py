"""`jax._src.interpreters`: the interpreters of jaxprs."""
