"""Kernel IR as kernels for NVIDIA's GPUs: planned here, compiled by Numba-CUDA, launched by a driver."""
