"""Hooks of MkDocs: the API reference and the notebooks become pages while the site is built."""

import importlib.util
import json
import re
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "notebooks"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def output(made: dict[str, Any]) -> str:
    """What a cell shows, as Markdown."""
    data = made.get("data", {})
    text = made.get("text") or data.get("text/plain", "")
    if "image/png" in data:
        encoded = "".join(data["image/png"]).replace("\n", "")
        return f'<img class="figure" alt="figure" src="data:image/png;base64,{encoded}">'
    if "text/html" in data:
        html = "".join(data["text/html"])
        return "<div>" + re.sub(r"\n\s*\n", "\n", html) + "</div>"
    return f'<pre class="output"><code>{escape("".join(text).rstrip())}</code></pre>'


def notebook(path: Path) -> str:
    """A notebook as Markdown, with the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [output(made) for made in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that no file in docs/ holds, and puts them into the navigation."""
    reference = _module("reference")
    pages = {"reference/index.md": reference.index()}
    pages |= {f"reference/{face}.md": reference.page(face) for _, face in reference.faces()}
    books = sorted(NOTEBOOKS.glob("*.ipynb"))
    pages |= {f"notebooks/{path.stem}.md": notebook(path) for path in books}
    for uri, text in pages.items():
        files.append(File.generated(config, uri, content=text))
    for entry in config.nav:
        if isinstance(entry, dict):
            (title,) = entry
            if isinstance(entry[title], str) and entry[title].endswith("/"):
                entry[title] = [uri for uri in pages if uri.startswith(entry[title])]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to notebooks, and from them, lead to their pages."""
    if page.file.src_uri.startswith("notebooks/"):
        return re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", markdown).replace("](../docs/", "](../")
    return re.sub(r"\]\((?:\.\./)+notebooks/(\w+)\.ipynb\)", _to_root(page), markdown)


def _to_root(page: Any) -> str:
    return "](" + "../" * page.file.src_uri.count("/") + r"notebooks/\1.md)"
