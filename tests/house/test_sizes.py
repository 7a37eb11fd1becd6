"""Files and functions stay of a size that is read at one go."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("fnx", "interpreters", "lowering", "tests", "benchmarks", "docs")
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, FILES_OF_A_FOLDER = 450, 60, 24

TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}


def functions(text: str) -> dict[str, int]:
    """The lines of each function, by name."""
    return {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_files_have_one_concept():
    assert len(TEXTS) > 900
    lines = {path: len(text.splitlines()) for path, text in TEXTS.items()}
    assert not {path: n for path, n in lines.items() if n > LINES_OF_A_FILE}


def test_functions_fit_a_screen():
    lines = {(path, f): n for path, text in TEXTS.items() for f, n in functions(text).items()}
    assert len(lines) > 9000
    assert not {place: n for place, n in lines.items() if n > LINES_OF_A_FUNCTION}


def test_folders_of_tests_are_seen_at_a_glance():
    """As rooms are (test_layers.py)."""
    files = Counter(str(Path(path).parent) for path in TEXTS if path.startswith("tests"))
    assert not {folder: n for folder, n in files.items() if n > FILES_OF_A_FOLDER}
