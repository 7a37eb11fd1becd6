"""`python docs/build.py [FOLDER]` builds the site: pages, notebooks and the API reference, as HTML.

Sphinx makes an error of every warning. Needs `pip install 'fnx[docs]'`.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "notebooks"

# What the index lists beside its text, in order; a star stands for all pages of a folder.
CONTENTS = {
    "Start": "quickstart examples notebooks/*",
    "How to": "howto/control_flow howto/memory howto/custom_rules howto/dtypes howto/random "
    "howto/linear_algebra howto/sparse howto/odes howto/debugging howto/progress howto/profiling "
    "howto/threads howto/gpu howto/cache errors",
    "Reference": "reference/index",
    "From JAX": "howto/libraries differences libraries missing",
    "Background": "benchmarks vmath design glossary",
}
TO_NOTEBOOK = r"\]\((?:\.\./)+notebooks/(\w+)\.ipynb\)"
BOXED = "white-space:pre-wrap;font-size:80%;border-left:2px solid #8884;padding:.2rem .8rem"


def module(name: str) -> ModuleType:
    """A file beside this one."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def toctree(pages: list[str], caption: str = "", hidden: bool = True) -> str:
    options = [f":caption: {caption}"] if caption else []
    options += [":hidden:"] if hidden else []
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def output(made: dict[str, Any]) -> str:
    """What a cell shows, as HTML."""
    data = made.get("data", {})
    if "image/png" in data:
        encoded = "".join(data["image/png"]).replace("\n", "")
        html = f'<img alt="what the cell draws" src="data:image/png;base64,{encoded}">'
    elif "text/html" in data:
        html = "".join(data["text/html"])
    else:
        text = "".join(made.get("text") or data.get("text/plain", ""))
        html = f'<pre style="{BOXED}">{escape(text.rstrip())}</pre>'
    return f"````{{raw}} html\n{html}\n````"


def notebook(path: Path) -> str:
    """A notebook as Markdown, with the outputs that are stored in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source)
            parts.append(source.replace("](../docs/", "](../"))
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [output(made) for made in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def assemble(folder: Path) -> None:
    """All pages of the site as Markdown, those that are made beside those that are written."""
    ignored = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(HERE, folder, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(HERE / "conf.py", folder)
    for file in folder.rglob("*.md"):
        up = "../" * len(file.relative_to(folder).parent.parts)
        text = re.sub(TO_NOTEBOOK, rf"]({up}notebooks/\1.md)", file.read_text(encoding="utf-8"))
        file.write_text(text.replace("\n\n```\n", "\n```\n"), encoding="utf-8")
    reference = module("reference")
    faces = {f"reference/{face}": reference.page(face) for _, face in reference.faces()}
    names = [uri.removeprefix("reference/") for uri in faces]
    made = faces | {"reference/index": reference.index() + toctree(names)}
    books = {f"notebooks/{path.stem}": notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    made |= books
    for uri, text in made.items():
        (folder / uri).parent.mkdir(exist_ok=True)
        (folder / f"{uri}.md").write_text(text)
    index = (folder / "index.md").read_text()
    for caption, words in CONTENTS.items():
        pages = [p for word in words.split() for p in ([*books] if "*" in word else [word])]
        index += toctree(pages, caption)
    (folder / "index.md").write_text(index)


def main(target: str = "build/site") -> int:
    with tempfile.TemporaryDirectory() as sources:
        assemble(Path(sources))
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", sources, target]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
