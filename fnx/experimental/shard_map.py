"""shard_map under its older name; it is fnx.shard_map."""

from fnx.spmd import shard_map

__all__ = ["shard_map"]
