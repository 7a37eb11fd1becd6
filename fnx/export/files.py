"""Files of exported functions: a magic number, a version, a checksum, and a compressed tree.

Nothing in them is code of Python: names of operations of fnx, numbers, and arrays.
"""

import json
import struct
import zlib
from hashlib import sha256
from typing import Any

from fnx.core.errors import InvalidValue, TypeMismatch

VERSION = 1  # of what files say of a program; those of other versions are refused

_MAGIC = b"\x89fnx-export\r\n"
_HEAD = struct.Struct("<IQ32s")  # version, bytes of the compressed tree, their SHA-256
_LARGEST = 1 << 34  # bytes of a tree; more are refused before they are unpacked


def pack(tree: Any) -> bytearray:
    """The bytes of a file that holds a tree of dicts, lists, numbers and strings."""
    data = zlib.compress(json.dumps(tree, separators=(",", ":")).encode())
    return bytearray(_MAGIC + _HEAD.pack(VERSION, len(data), sha256(data).digest()) + data)


def unpack(blob: Any) -> Any:
    """The tree of a file; InvalidValue for damaged ones and for other versions."""
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeMismatch(
            f"deserialize of a {type(blob).__name__}; expected the bytes of serialize()"
        )
    data = bytes(blob)
    start = len(_MAGIC) + _HEAD.size
    if not data.startswith(_MAGIC):
        raise InvalidValue(
            f"{len(data)} bytes that begin with {data[:12]!r} are no exported function; expected what "
            "serialize() gave. Files of jax.export hold StableHLO, which fnx does not read"
        )
    if len(data) < start:
        raise damaged("its head is cut off")
    version, size, digest = _HEAD.unpack(data[len(_MAGIC) : start])
    if version != VERSION:
        raise InvalidValue(
            f"an exported function of version {version} of the format; expected {VERSION}. Export it anew "
            "with this version of fnx, or read it with that which wrote it"
        )
    packed = data[start:]
    if len(packed) != size or sha256(packed).digest() != digest:
        raise damaged(
            f"{len(packed)} bytes of {size}, with another checksum than when it was written"
        )
    try:
        return json.loads(_unpacked(packed))
    except (ValueError, zlib.error, RecursionError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from error


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, _LARGEST)
    if unpacker.unconsumed_tail:
        raise damaged(f"more than {_LARGEST} bytes")
    return data


def damaged(how: str) -> InvalidValue:
    """The error for a file that is not as it was written."""
    return InvalidValue(
        f"an exported function that cannot be read ({how}); expected the bytes of serialize(), as they "
        "were written, and the version of fnx that wrote them"
    )
