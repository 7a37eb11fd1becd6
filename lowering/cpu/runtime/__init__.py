"""What native programs need while they run: the ABI, memory, threads, callbacks, interrupts, calls."""
