"""The README: its examples run, its commands are those of CI; the pages name files that exist."""

import ast
import doctest
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *("README.md", "CONTRIBUTING.md", "benchmarks/README.md"),
    *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")),
]


def commands(repository) -> list[str]:
    text = (repository / "README.md").read_text(encoding="utf-8")
    return [block.strip() for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)]


def test_examples():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile("../../README.md", optionflags=options)
    assert result.attempted > 5
    assert result.failed == 0


def test_examples_of_the_page_for_contributors():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile("../../CONTRIBUTING.md", optionflags=options)
    assert (result.attempted, result.failed) == (4, 0)


def test_the_readme_is_a_screen_beside_its_commands(repository):
    assert len((repository / "README.md").read_text(encoding="utf-8").splitlines()) <= 70


def test_the_glossary_is_short(repository):
    lines = (repository / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60


def test_pages_name_folders_that_exist(repository):
    for page in PAGES:
        text = (repository / page).read_text(encoding="utf-8")
        for name in re.findall(r"`((?:fnx|interpreters|lowering|tests)/[\w/]*)`", text):
            assert (repository / name).exists(), f"{page} names {name}"


def test_two_commands_do_all_the_set_up(repository):
    job, tests = commands(repository)
    for command in (job, tests):
        assert "\n" not in command
        assert command.startswith("python3 -m venv .venv && .venv/bin/python -m pip install -e ")
    assert job.endswith(" -m fnx.demo")
    assert tests.endswith(" -m pytest -n 2")


def test_the_extras_that_the_commands_install_exist(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    asked = {extra for line in commands(repository) for extra in re.findall(r"\[(\w+)\]", line)}
    assert asked == {"plot", "test"}
    assert asked <= set(project["optional-dependencies"])


def test_continuous_integration_finds_the_test_command(repository):
    script = (repository / ".ci" / "run").read_text(encoding="utf-8")
    (search,) = re.findall(r"grep -E '([^']*)' README.md", script)
    found = subprocess.run(
        ["grep", "-E", search, "README.md"], cwd=repository, capture_output=True, text=True
    )
    assert found.stdout.splitlines() == [commands(repository)[1]]


def test_no_registry_is_named(repository):
    for name in ("README.md", "pyproject.toml", ".ci/run", ".pre-commit-config.yaml"):
        text = (repository / name).read_text(encoding="utf-8")
        assert not re.search(r"pypi|index-url|conda|https?://", text, re.I), name


def test_pages_name_files_that_exist(repository):
    folders = "fnx interpreters lowering tests benchmarks docs".split()
    paths = [
        f"/{p.relative_to(repository)}"
        for name in folders
        for p in (repository / name).rglob("*.py")
    ]
    for page in PAGES:
        text = (repository / page).read_text(encoding="utf-8")
        for name in re.findall(r"(?<![\w/*])[\w/]+\.py\b", text):
            theirs = (
                page == "docs/libraries.md" and "/" in name
            )  # files of the libraries' own tests
            assert theirs or any(path.endswith(f"/{name}") for path in paths), (
                f"{page} names {name}"
            )


def test_docstrings_name_files_that_exist(repository):
    """Of modules: what they say of their neighbours."""
    folders = [repository / name for name in ("fnx", "interpreters", "lowering")]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    paths = [f"/{file.relative_to(repository)}" for file in files]
    for file in files:
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        for name in re.findall(r"(?<![\w/*.])[\w/]+\.py\b", text):
            assert any(path.endswith(f"/{name}") for path in paths), f"{file} names {name}"
