"""Kernels of attention for TPUs, of which there is nothing: they are not run."""  # keras
