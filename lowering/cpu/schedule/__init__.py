"""What the CPU's caches, registers and vectors make of loops: tiling, packing, short vectors."""
