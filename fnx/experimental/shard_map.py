"""shard_map under its older name; it is fnx.shard_map."""

from fnx.transforms.shard_map import shard_map

__all__ = ["shard_map"]
