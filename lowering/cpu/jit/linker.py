"""Linking: the object files of a program, as LLVM writes them for x86-64, become an image.

Only what LLVM makes of fnx's programs is known here. Whatever else there is raises Unlinked, and
LLVM's own linker is asked.
"""

import struct
from collections.abc import Sequence

from fnx.core.fast_dataclasses import dataclass
from fnx.lowering.cpu.processor import code_pages

from .image import Image

# Numbers of the ELF format, and of its supplement for x86-64.
_OBJECT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8  # types of sections
_WRITE, _ALLOC, _EXECUTE, _MERGE, _STRINGS = 1, 2, 4, 16, 32  # their flags
_KNOWN = _WRITE | _ALLOC | _EXECUTE | _MERGE | _STRINGS
_GLOBAL, _SECTION = 1, 3  # a binding, and a type, of symbols; types up to this are plain ones
_RESERVED = 0xFF00  # numbers of sections that are none
_ADDRESS, _DISTANCE, _CALL = 1, 2, 4  # relocations: R_X86_64_64, PC32, PLT32
_BY_TABLE = (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_RELAXED = (41, 42)  # the instruction may be another if the symbol is near
_LOAD, _LEA = 0x8B, 0x8D  # mov from memory, and the address itself
_STUB = struct.Struct("<Hixx")  # jmp by way of a word, filled up to 8 bytes
_JUMP = 0x25FF


class Unlinked(Exception):
    """An object file with something that is not known here."""


@dataclass
class _Section:
    type: int
    flags: int
    offset: int  # in the file
    size: int
    link: int
    info: int
    alignment: int
    place: int = -1  # in the image


@dataclass(frozen=True)
class _Symbol:
    name: str
    binding: int
    section: int
    value: int


@dataclass(frozen=True)
class _Object:
    data: bytes
    sections: list[_Section]
    symbols: list[_Symbol]

    def where(self, symbol: _Symbol, defined: dict[str, int]) -> int | None:
        """Where a symbol is in the image; None where that does not define it."""
        if not symbol.section:
            return defined.get(symbol.name)
        place = self.sections[symbol.section].place
        if place < 0:
            raise Unlinked("a symbol in a section that is not loaded")
        return place + symbol.value


def image(binaries: Sequence[bytes], exports: Sequence[str]) -> Image:
    """The image of objects that refer to each other, and to names of the process."""
    if not code_pages.usable():
        raise Unlinked("another platform")
    try:
        return _linked([_parsed(binary) for binary in binaries], exports)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise Unlinked(f"{type(error).__name__}: {error}") from error


# --- reading -----------------------------------------------------------------------------------


def _parsed(data: bytes) -> _Object:
    if not data.startswith(_OBJECT):
        raise Unlinked("no object file")
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = []
    for k in range(count):
        _, kind, flags, _, offset, size, link, info, alignment, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, table + 64 * k
        )
        if flags & _ALLOC and (kind not in (_PROGBITS, _NOBITS) or flags & ~_KNOWN):
            raise Unlinked(f"a section of type {kind} with flags {flags}")
        sections.append(_Section(kind, flags, offset, size, link, info, max(alignment, 1)))
    (found,) = [s for s in sections if s.type == _SYMTAB]
    return _Object(data, sections, _symbols(data, found, sections[found.link].offset))


def _symbols(data: bytes, table: _Section, names: int) -> list[_Symbol]:
    symbols = []
    for at in range(table.offset, table.offset + table.size, 24):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
        is_file = section >= _RESERVED and info == 4
        if not is_file and (section >= _RESERVED or info >> 4 > _GLOBAL or info & 15 > _SECTION):
            raise Unlinked(f"a symbol of kind {info} in section {section}")
        end = data.index(b"\0", names + name)
        symbols.append(_Symbol(data[names + name : end].decode(), info >> 4, section, value))
    return symbols


# --- linking -----------------------------------------------------------------------------------


def _linked(objects: list[_Object], exports: Sequence[str]) -> Image:
    """Sections side by side: code and constants, then variables, zeros last; and what refers to what."""
    chosen = [(o, s) for o in objects for s in o.sections if s.flags & _ALLOC and s.size]
    fixed = [(o, s) for o, s in chosen if not s.flags & _WRITE]
    variables = [(o, s) for o, s in chosen if s.flags & _WRITE]
    fixed.sort(key=lambda pair: not pair[1].flags & _EXECUTE)
    variables.sort(key=lambda pair: pair[1].type == _NOBITS)  # the zeros last
    end = _laid_out(fixed, 0)
    own = {y.name for o in objects for y in o.symbols if y.section and y.binding == _GLOBAL}
    wanted = (y.name for o in objects for y in o.symbols if y.name and not y.section)
    names = [name for name in dict.fromkeys(wanted) if name not in own]
    stubs = _up(end, 8)
    words = stubs + 8 * len(names)
    writable = _up(words + 8 * len(names), code_pages.PAGE)
    size = _laid_out(variables, writable)
    filled = [s.place + s.size for _, s in variables if s.type != _NOBITS]
    code = bytearray(max([words + 8 * len(names), *filled]))
    for o, s in chosen:
        if s.type == _PROGBITS:
            code[s.place : s.place + s.size] = o.data[s.offset : s.offset + s.size]
    for k in range(len(names)):
        at = stubs + 8 * k
        _STUB.pack_into(code, at, _JUMP, words + 8 * k - (at + 6))
    defined = _defined(objects)
    fixes = _Fixes(code, {name: k for k, name in enumerate(names)}, stubs, words, defined)
    for o in objects:
        for s in o.sections:
            if s.type == _RELA and o.sections[s.info].flags & _ALLOC:
                fixes.section(o, s)
    listed = [(words + 8 * k, k, 0) for k in range(len(names))] + fixes.addresses
    return Image(
        bytes(code),
        size,
        writable,
        tuple(names),
        tuple(listed),
        tuple(fixes.calls),
        {name: defined[name] for name in exports},
    )


def _up(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def _laid_out(sections: list[tuple[_Object, _Section]], start: int) -> int:
    """Give sections their places one after the other; where they end."""
    for _, s in sections:
        if s.alignment > code_pages.PAGE:
            raise Unlinked(f"a section aligned to {s.alignment} bytes")
        s.place = _up(start, s.alignment)
        start = s.place + s.size
    return start


def _defined(objects: list[_Object]) -> dict[str, int]:
    """Where the objects' public symbols are."""
    defined: dict[str, int] = {}
    for o in objects:
        for y in o.symbols:
            if y.section and y.section < _RESERVED and y.binding == _GLOBAL:
                if y.name in defined:
                    raise Unlinked(f"{y.name} is defined twice")
                defined[y.name] = o.where(y, defined) or 0
    return defined


@dataclass
class _Fixes:
    """What is written where code refers to symbols."""

    code: bytearray
    names: dict[str, int]
    stubs: int
    words: int
    defined: dict[str, int]

    def __post_init__(self) -> None:
        self.addresses: list[tuple[int, int, int]] = []
        self.calls: list[tuple[int, int]] = []

    def section(self, o: _Object, s: _Section) -> None:
        """All references of a section."""
        start = o.sections[s.info].place
        for at in range(s.offset, s.offset + s.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", o.data, at)
            symbol = o.symbols[info >> 32]
            self._one(
                start + offset, info & 0xFFFFFFFF, symbol, o.where(symbol, self.defined), addend
            )

    def _one(self, at: int, kind: int, symbol: _Symbol, target: int | None, addend: int) -> None:
        """A reference; `target` is None for a name of the process."""
        if kind == _ADDRESS:
            k = -1 if target is not None else self.names[symbol.name]
            self.addresses.append((at, k, addend + (target or 0)))
            return
        if target is not None:
            if kind in _RELAXED and addend == -4 and self.code[at - 2] == _LOAD:
                self.code[at - 2] = _LEA
            elif kind not in (_DISTANCE, _CALL):
                raise Unlinked(f"a relocation of type {kind}")
        else:
            k = self.names[symbol.name]
            if kind in _BY_TABLE:
                target = self.words + 8 * k
            elif kind == _CALL and addend == -4:
                target = self.stubs + 8 * k
                self.calls.append((at, k))
            else:
                raise Unlinked(f"a relocation of type {kind} to {symbol.name}")
        struct.pack_into("<i", self.code, at, target + addend - at)
