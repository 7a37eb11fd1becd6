"""From a jaxpr to Kernel IR: where values live, which of them share a nest, what is written in place."""
