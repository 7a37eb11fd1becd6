"""From the Kernel IR to kernels of a GPU: what is one, what the host does between, and the source."""
