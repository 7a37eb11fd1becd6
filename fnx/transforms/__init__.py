"""Transformations that users call: grad, vmap, jit, shard_map, rules of their own, references."""
