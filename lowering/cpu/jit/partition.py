"""A program's LLVM module in parts, which can be compiled side by side and are linked as one.

Kernels are functions that nobody inlines: each may lie in any part, with copies of the small
functions that it calls.
"""

import re

from fnx.lowering.cpu.processor import thresholds

_DEFINED = re.compile(r"^define [^@\n]*@([\w.]+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"@([\w.]+)")
IN_ORDER = '"in-order"'  # attribute of functions whose instructions LLVM leaves in order


def split(text: str, most: int) -> list[str]:
    """The text of a module in at most so many parts of about equal length, the longest first.

    Kernels whose instructions stay in order are apart from others, whatever the lengths.
    """
    count = min(most, len(text) // thresholds.PART_CHARACTERS)
    if count < 2 and IN_ORDER not in text:
        return [text]
    functions = {found[1]: found[0] for found in _DEFINED.finditer(text)}
    shared = _DEFINED.sub("", text)
    calls = {name: set(_NAME.findall(code)) & set(functions) for name, code in functions.items()}
    roots = [name for name, code in functions.items() if _is_root(code)]
    lengths = {
        root: sum([len(functions[n]) for n in _reached([root], functions, calls)[0]])
        for root in roots
    }
    groups = [g for sort in _sorts(roots, functions) for g in _even(sort, lengths, count)]
    return [_part(names, functions, calls, shared) for _, names in sorted(groups, reverse=True)]


def _sorts(roots: list[str], functions: dict[str, str]) -> list[list[str]]:
    """The functions of parts that are compiled alike; the entry is with any of them."""
    ordered = [name for name in roots if IN_ORDER in _head(functions[name])]
    others = [name for name in roots if name not in ordered]
    if all(not _head(functions[name]).startswith("define internal") for name in others):
        return [roots]
    return [ordered, others] if ordered else [others]


def _even(roots: list[str], lengths: dict[str, int], count: int) -> list[tuple[int, list[str]]]:
    """Functions in so many groups of about equal length, at most one each: lengths and names."""
    groups: list[tuple[int, list[str]]] = [(0, []) for _ in range(min(max(count, 1), len(roots)))]
    for root in sorted(roots, key=lambda name: -lengths[name]):
        length, names = min(groups)
        groups[groups.index((length, names))] = length + lengths[root], [*names, root]
    return groups


def _head(code: str) -> str:
    """The first line of a function."""
    return code[: code.index("\n")]


def _is_root(code: str) -> bool:
    """Whether a function is the entry, or one that stays a function."""
    head = _head(code)
    return not head.startswith("define internal") or " noinline " in head


def _reached(
    names: list[str], functions: dict[str, str], calls: dict
) -> tuple[dict[str, None], dict[str, None]]:
    """The functions that the part of these ones defines, and those that it declares."""
    needed, todo = dict.fromkeys(names), list(names)
    declared: dict[str, None] = {}
    while todo:
        for name in sorted(calls[todo.pop()]):
            if name in needed:
                continue
            if _is_root(functions[name]):
                declared[name] = None
            else:
                needed[name] = None
                todo.append(name)
    return needed, declared


def _part(names: list[str], functions: dict[str, str], calls: dict, shared: str) -> str:
    """The module that defines these functions for all parts, and what they need for itself."""
    needed, declared = _reached(names, functions, calls)
    texts = [_public(functions[n]) if n in names else functions[n] for n in needed]
    heads = [_public(functions[n]).split("\n", 1)[0] for n in declared]
    heads = [head.removesuffix("{").replace(IN_ORDER, "") for head in heads]
    texts += [f"declare{head.removeprefix('define')}\n" for head in heads]
    return "".join([*texts, shared])


def _public(code: str) -> str:
    return code.replace("define internal ", "define ", 1)
