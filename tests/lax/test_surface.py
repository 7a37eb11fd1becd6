"""The public surface: names and parameters that programs written for JAX use."""

import importlib
import inspect
import json
from pathlib import Path

import pytest

import fnx

# Per name the parameters that callers may pass: positional ones up to a lone *, keywords after it;
# a lone / ends those without a name.
SIGNATURES = json.loads((Path(__file__).parents[1] / "data" / "signatures.json").read_text("utf-8"))


def find(name: str):
    """The object of a dotted name, whose modules may not have been imported yet."""
    found = fnx
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


def problems(text: str, signature: inspect.Signature) -> list[str]:
    """Why a call by the words of `text` could fail."""
    words = text.split()
    named = [w for w in words if w not in "*/" and not w.startswith("*")]
    parameters = signature.parameters
    kinds = {p.kind for p in parameters.values()}
    found = []
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        found += [f"no parameter {w}" for w in named if w not in parameters]
    if "*args" not in text and inspect.Parameter.VAR_POSITIONAL not in kinds:
        stop = next((k for k, w in enumerate(words) if w.startswith("*")), len(words))
        positional = [w for w in words[:stop] if w != "/"]
        mine = [n for n, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        if mine[: len(positional)] != positional:
            found.append(f"positions are {mine}, expected {positional}")
    return found


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_name_takes_the_parameters_that_callers_pass(name):
    assert problems(SIGNATURES[name], inspect.signature(find(name))) == []


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("x axis", lambda x: x),
        ("x axis", lambda axis, x: x),
        ("x * axis", lambda x, *, axes: x),
    ],
)
def test_the_check_finds_a_wrong_signature(text, function):
    assert problems(text, inspect.signature(function))


def test_the_table_is_whole():
    assert len(SIGNATURES) > 200
