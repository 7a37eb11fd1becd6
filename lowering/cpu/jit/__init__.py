"""Text to machine code: options, compiling in parts, linking, the cache of code."""
