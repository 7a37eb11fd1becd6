"""benchmarks/gpu_first_run.py ends in time, whatever its stages do, and says how each of them ended."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu_first_run.py"


@pytest.fixture(scope="module")
def first_run():
    spec = importlib.util.spec_from_file_location("gpu_first_run", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(text):
    return [sys.executable, "-c", text]


@pytest.mark.slow
def test_stages_end_in_time(first_run, tmp_path):
    commands = [python("print('done')"), python("import time; time.sleep(60)"), ["no-such-command"]]
    stage = first_run.Stage("three", 5, commands)
    found = first_run.run(stage, tmp_path, 100, first_run.environment(True, tmp_path))
    assert sorted(map(str, found["codes"])) == ["0", "FileNotFoundError", "time was over"]
    assert found["seconds"] < 30
    assert (tmp_path / "three_0.txt").read_text().endswith("done\n")


def test_settings_of_a_stage(first_run, tmp_path):
    command = python("import os; print(os.environ['FNX_FUZZ'], os.environ['FNX_CACHE_DIR'])")
    stage = first_run.Stage("one", 60, [command], settings=(("FNX_FUZZ", "1"),))
    first_run.run(stage, tmp_path, 100, first_run.environment(False, tmp_path))
    assert f"1 {tmp_path}/cache" in (tmp_path / "one_0.txt").read_text()


def test_all_stages_say_how_they_ended(first_run, tmp_path, monkeypatch, capsys):
    stages = [
        first_run.Stage("good", 60, [python("pass")]),
        first_run.Stage("bad", 60, [python("raise SystemExit(3)")]),
        first_run.Stage("of a GPU", 60, [python("pass")], needs_gpu=True),
    ]
    monkeypatch.setattr(first_run, "stages", lambda rehearse, install: stages)
    monkeypatch.setattr(sys, "argv", ["gpu_first_run.py", str(tmp_path), "--rehearse"])
    assert first_run.main() == 1
    ended = json.loads((tmp_path / "summary.json").read_text())
    assert [e["codes"] for e in ended] == [[0], [3], ["needs a GPU"]]
    assert "of a GPU" in (tmp_path / "summary.txt").read_text()


def test_what_stages_name_is_there(first_run):
    for rehearse in (True, False):
        found = first_run.stages(rehearse, not rehearse)
        assert found[0].name == "packages"
        assert ("install" in [s.name for s in found]) is not rehearse
        words = [w for s in found for c in s.commands for w in map(str, c)]
        files = [w for w in words if w.endswith(".py")]
        assert len(files) >= 3
        assert not [w for w in files if not (first_run.ROOT / w).exists()]
    text = (FILE.parent / "gpu_figures.py").read_text()
    assert not [n for n in first_run.FIGURES if f"def {n}() -> Iterator" not in text]
    assert set(first_run.STEPS) >= {"driver", "memory", "atomics", "graphs", "threads", "libraries"}
