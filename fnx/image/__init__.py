"""Images: resizing, and scaling with translation."""

from fnx.image.resize import (
    ResizeMethod,
    resize,
    scale_and_translate,
)

__all__ = [
    "ResizeMethod",
    "resize",
    "scale_and_translate",
]
