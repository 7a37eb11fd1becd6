"""Kernel IR as LLVM IR: the module, functions, control flow, scalars, vectors."""
