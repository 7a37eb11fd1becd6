"""From text to calls: compiling, loading, the cache, the call wrapper, threads, library routines."""
