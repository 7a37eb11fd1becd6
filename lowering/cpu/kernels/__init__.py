"""Library kernels written as LLVM IR: matrix products, factorizations, Fourier transforms."""
