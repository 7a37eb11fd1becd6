"""The pages of docs/: examples run, links lead somewhere, the site is built without warnings."""

import doctest
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages_of_docs import ROOT, load

import fnx
from fnx.core import errors

DOCS = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *DOCS]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of code, each with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", read(page), re.M | re.S)


@pytest.mark.parametrize("page", DOCS)
def test_examples_run(page):
    before = fnx.config.backend, fnx.config.enable_x64, fnx.get_num_threads()
    result = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=OPTIONS)
    assert result.failed == 0
    assert (fnx.config.backend, fnx.config.enable_x64, fnx.get_num_threads()) == before


@pytest.mark.parametrize("page", PAGES)
def test_no_code_is_left_out_of_the_tests(page):
    for language, text in blocks(page):
        if language == "python":
            assert text.startswith(">>>"), text
        elif language == "py":  # a program of its own
            compile(text, page, "exec")
        else:
            assert language in ("sh", ""), language


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if any(k == "py" for k, _ in blocks(p))])
def test_programs_run(page, tmp_path):
    for language, text in blocks(page):
        if language == "py":
            for name in re.findall(r"^(?:import|from) (\w+)", text, re.M):
                if name != "jax" and importlib.util.find_spec(name) is None:
                    pytest.skip(f"{name} is not installed, see the extra 'libraries-test'")
            (tmp_path / "program.py").write_text(text, encoding="utf-8")
            command = [sys.executable, "-W", "ignore", "program.py"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_what_exists(page):
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    for language, text in blocks(page):
        if language != "sh":
            continue
        for module in re.findall(r"python3? -m ([\w.]+)", text):
            top = "benchmarks" if module.startswith("benchmarks") else module
            assert importlib.util.find_spec(top) or (ROOT / module).exists(), module
        for extra in re.findall(r"\.\[([\w,-]+)\]", text):
            assert set(extra.split(",")) <= set(extras), extra
        for file in re.findall(r"(?<![\w/])((?:benchmarks|docs|tests|\.ci)/[\w./]+)", text):
            if not file.startswith("benchmarks/out"):
                assert (ROOT / file).exists(), file


def anchors(path: Path) -> set[str]:
    """What links may name in a page: its headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)
    links = re.findall(r"(?<!`)\]\(([^)\s]+)\)", text) + re.findall(
        r'(?:src|srcset)="([^"]+)"', text
    )
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_error_has_an_entry():
    known = [v for v in vars(errors).values() if isinstance(v, type)]
    names = {v.__name__ for v in known if issubclass(v, errors.FnxError)}
    entries = dict(re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", read("docs/errors.md"), re.M | re.S))
    assert names <= set(entries)
    for name in names - {
        "FnxError",
        "MissingPackage",
        "KeyReuseError",
        "JaxRuntimeError",
        "CompileError",
    }:
        assert "Traceback" in entries[name], name
        assert entries[name].rindex(">>>") > entries[name].index("Traceback"), (
            name
        )  # and right code


def test_the_reference_has_every_public_name():
    reference = load("reference")
    spec = importlib.util.spec_from_file_location(
        "examples", Path(__file__).with_name("test_docstrings.py")
    )
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    assert {face for _, face in reference.faces()} >= set(examples.FACES)
    for face in examples.FACES:
        text = reference.page(face)
        for name in examples.public(face):
            assert f"## {reference.escaped(name)}\n" in text, (face, name)


def test_signatures_are_written_as_python():
    signature = load("reference").signature

    def some(a, b, /, *rest, c=1, **more):
        pass

    def many(
        first_of_all, /, second_of_all=None, *, third_of_all: int = 1, fourth_of_all: str = ""
    ):
        pass

    assert signature("f", some) == "f(a, b, /, *rest, c=1, **more)"
    lines = ["f(", "first_of_all", "/", "second_of_all=None", "*", "third_of_all: int = 1"]
    assert [line.strip().removesuffix(",") for line in signature("f", many).splitlines()][
        :6
    ] == lines
    compile(f"def {signature('f', many)}: pass", "", "exec")


def test_prose_of_docstrings_has_no_links_or_tags():
    escaped = load("reference").escaped
    assert escaped("x[0](y) of `a[1]`, <b>") == r"x\[0\](y) of `a[1]`, \<b\>"


def test_every_page_is_in_the_contents():
    words = {w for listed in load("build").CONTENTS.values() for w in listed.split()}
    pages = {p.removeprefix("docs/").removesuffix(".md") for p in DOCS} - {"index"}
    assert pages == words - {"notebooks/*", "reference/index"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    for name in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(name, reason=f"{name} is not installed, see the extra 'docs'")
    command = [sys.executable, str(ROOT / "docs/build.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "reference" / "numpy.html").exists()
    assert "data:image/png" in (tmp_path / "notebooks" / "01_tour.html").read_text()


def test_pictures_and_tables_of_benchmarks_are_those_of_the_stored_results():
    """If this fails, `python benchmarks/pictures.py` makes them again."""
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "benchmarks/pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for name, part in pictures.results().items():
        assert pictures.drawing(part["rows"]) == read(f"docs/pictures/{name}.svg")
        spans = [row[k] for row in part["rows"] for k in ("one", "two") if k in row]
        assert all(pictures.LEAST < low <= high < pictures.MOST for low, high in spans)
    assert pictures.page(read("docs/benchmarks.md")) == read("docs/benchmarks.md")


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_are_stored_as_pages_that_can_be_read(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(prose)):
        assert "://" in link or (path.parent / link).exists(), link
    assert sum(text.startswith("# ") for text in prose) == 1  # a title
    for cell in cells:
        if cell["cell_type"] == "code":
            outputs = cell["outputs"]
            assert not [
                o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"
            ]
            drawn = sum("image/png" in o.get("data", {}) for o in outputs)
            assert drawn == "".join(cell["source"]).count("plt.show()")
