"""Sources of kernels as NVVM's LLVM IR: translates what the printer writes of Numba-CUDA's dialect."""
