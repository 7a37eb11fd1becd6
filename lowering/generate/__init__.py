"""Jaxpr to Kernel IR for any target: where values live, what shares a nest, what is written in place."""
