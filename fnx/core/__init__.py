"""The core: avals, arrays, primitives, jaxprs, the current interpreter, and what lowering is told."""
