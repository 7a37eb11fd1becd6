"""Whose frames are the user's, as `jax.extend.source_info_util` asks it."""

from fnx.core.source import exclude


def register_exclusion(path: str) -> None:
    """Let errors name the callers of a library's files, which lie under `path`, as the user's lines.

    >>> fnx.extend.source_info_util.register_exclusion("/opt/library")
    """
    exclude(path)
