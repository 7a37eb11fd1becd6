"""From Kernel IR to text: LLVM IR and runnable Numba Python; mathematical functions."""
