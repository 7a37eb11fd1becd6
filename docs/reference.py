"""The pages of the API reference, one a module, made from docstrings when the site is built."""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

# What users import, by subject. A name with a star stands for the modules within it.
GROUPS = {
    "Transformations": "fnx ad_checkpoint custom_derivatives debug profiler sharding",
    "Arrays": "numpy numpy.fft numpy.linalg lax lax.linalg random dtypes image tree tree_util typing",
    "Layers": "nn nn.initializers",
    "SciPy": "scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate scipy.linalg scipy.ndimage "
    "scipy.optimize scipy.signal scipy.sparse.linalg scipy.special scipy.stats.*",
    "Experimental": "experimental.*",
    "For libraries": "api_util extend.backend extend.core extend.linear_util extend.random "
    "extend.source_info_util test_util",
}
# Modules of packages with a star that are no face: what others there are made of.
PARTS = ("scipy.stats.common", "experimental.checks", "experimental.sparse.", "experimental.taylor")


def within(package: str) -> list[str]:
    """The modules that lie in a package, at any depth, as names under fnx."""
    import pkgutil

    top = importlib.import_module(f"fnx.{package}")
    found = pkgutil.walk_packages(top.__path__, f"fnx.{package}.")
    names = [m.name.removeprefix("fnx.") for m in found]
    return sorted(n for n in names if not n.startswith(PARTS) and "._" not in n)


def faces() -> Iterator[tuple[str, str]]:
    """Each module that has a page, with its group."""
    for group, names in GROUPS.items():
        for name in names.split():
            for face in within(name[:-2]) if name.endswith("*") else [name]:
                yield group, face


def public(face: str) -> dict[str, object]:
    """The functions and classes that users name: what a package, or `__all__`, offers of fnx's own."""
    module = importlib.import_module("fnx" if face == "fnx" else f"fnx.{face}")
    listed = hasattr(module, "__all__") or hasattr(module, "__path__")
    home = "fnx" if listed else module.__name__
    names = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    values = {n: getattr(module, n) for n in names if not n.endswith("_p")}
    return {
        n: v
        for n, v in values.items()
        if callable(v) and (getattr(v, "__module__", None) or "").startswith(home)
    }


def signature(name: str, value: object) -> str:
    """How it is called, without addresses of defaults; a long one takes a line for each parameter."""
    if isinstance(value, type) and issubclass(value, Exception):
        return name
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"{name}(...)"
    if len(f"{name}{found}") > 88 and found.parameters:
        text = str(found.replace(parameters=(), return_annotation=found.return_annotation))
        words = _parameters(found)
        text = text.replace("()", "(\n    " + ",\n    ".join(words) + ",\n)", 1)
    else:
        text = str(found)
    text = re.sub(r"<(?:function|class|object)[^>]*>", "...", f"{name}{text}")
    return re.sub(r"\b(?:collections\.abc|typing)\.", "", text)


def _parameters(found: inspect.Signature) -> list[str]:
    """The parameters as they are written, with the marks of kinds between them."""
    kinds, words, before = inspect.Parameter, [], None
    for p in found.parameters.values():
        if before is kinds.POSITIONAL_ONLY and p.kind is not before:
            words.append("/")
        if p.kind is kinds.KEYWORD_ONLY and before not in (
            kinds.KEYWORD_ONLY,
            kinds.VAR_POSITIONAL,
        ):
            words.append("*")
        words.append(str(p))
        before = p.kind
    return words + ["/"] * (before is kinds.POSITIONAL_ONLY)


def escaped(text: str) -> str:
    """Prose in which Markdown sees no links, emphasis or tags but code."""
    parts = re.split(r"(``?[^`]+``?)", text)
    parts[::2] = [re.sub(r"([\[\]*_<>])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def described(doc: str) -> str:
    """A docstring as Markdown: its examples are blocks of code."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc)):
        if block.lstrip().startswith((">>>", "...")):
            if blocks and blocks[-1].startswith("```"):
                blocks[-1] = blocks[-1][:-4] + "\n\n" + block + "\n```"
            else:
                blocks.append(f"```pycon\n{block}\n```")
        elif ">>>" in block:
            prose, _, code = block.partition(">>>")
            blocks += [escaped(prose.rstrip()), f"```pycon\n>>>{code}\n```"]
        else:
            blocks.append(escaped(block))
    return "\n\n".join(blocks)


def page(face: str) -> str:
    """The Markdown of a module."""
    module: ModuleType = importlib.import_module("fnx" if face == "fnx" else f"fnx.{face}")
    title = "fnx" if face == "fnx" else f"fnx.{face}"
    parts = [f"# {title}", escaped((module.__doc__ or "").strip().split("\n\n")[0])]
    for name, value in sorted(public(face).items(), key=lambda item: item[0].lower()):
        parts.append(f"## {escaped(name)}")
        parts.append(f"```python\n{signature(name, value)}\n```")
        parts.append(described(value.__doc__ or ""))
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The page that lists all others."""
    parts = ["# Reference", "Made from the docstrings of the code; the tests run every example."]
    listed = list(faces())
    for group in GROUPS:
        parts.append(f"## {group}")
        lines = [
            f"- [{'fnx' if face == 'fnx' else 'fnx.' + face}]({face}.md)"
            for g, face in listed
            if g == group
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
