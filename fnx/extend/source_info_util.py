"""Whose frames are the user's, and where equations come from, as `jax.extend.source_info_util` says it."""

from fnx.core.source import SourceInfo, exclude


def register_exclusion(path: str) -> None:
    """Let errors name the callers of a library's files, which lie under `path`, as the user's lines.

    >>> fnx.extend.source_info_util.register_exclusion("/opt/library")
    """
    exclude(path)


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """The line of the user's that an equation comes from: "file:line (function)", or "unknown".

    >>> jaxpr = fnx.make_jaxpr(lambda x: x + 1.0)(2.0)
    >>> fnx.extend.source_info_util.summarize(jaxpr.eqns[0].source_info).endswith("(<lambda>)")
    True
    """
    del num_frames  # one frame is known
    source = source_info.traceback
    if source is None:
        return "unknown"
    return f"{source.code.co_filename}:{source.line} ({source.code.co_qualname})"
