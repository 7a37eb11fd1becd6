"""`jax._src.source_info_util`: where equations come from."""

from typing import NamedTuple

from fnx.core.source import SourceInfo
from fnx.extend.source_info_util import register_exclusion, summarize

__all__ = ["Frame", "register_exclusion", "summarize", "user_frame"]


class Frame(NamedTuple):  # jaxls
    """A line of the user's; fnx does not know columns, which are 0."""

    file_name: str
    function_name: str
    start_line: int
    start_column: int = 0
    end_line: int = 0
    end_column: int = 0


def user_frame(source_info: SourceInfo) -> Frame | None:  # jaxls
    """The line that an equation comes from, if it is known."""
    source = source_info.traceback
    if source is None:
        return None
    code = source.code
    return Frame(code.co_filename, code.co_qualname, source.line, end_line=source.line)
