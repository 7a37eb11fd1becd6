"""The main job: its answer, its output, its picture, and what it says to a bad table."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import fnx
from fnx.demo import __main__ as command
from fnx.demo.fit import Clock, fit
from fnx.demo.model import NAMES, STEPS_PER_YEAR, log_trajectory, negative_log_posterior
from fnx.demo.table import PELTS, TableError, read_table

# The posterior's means as published, and its standard deviations.
PUBLISHED = {
    "alpha": (0.545, 0.064),
    "beta": (0.028, 0.004),
    "gamma": (0.803, 0.09),
    "delta": (0.024, 0.0035),
    "hare0": (33.96, 2.9),
    "lynx0": (5.93, 0.53),
}
POINT = np.log([0.55, 0.028, 0.8, 0.024, 34.0, 5.9, 0.25, 0.25])


def demo(*arguments, cwd):
    """Run the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "fnx.demo", *arguments], cwd=cwd, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def answer(folder):
    """The output of the command with --json and --plot."""
    done = demo("--json", "--plot", "fit.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_estimates_agree_with_the_published_means(answer):
    estimates = json.loads(answer.stdout)["estimates"]
    for name, (mean, deviation) in PUBLISHED.items():
        assert abs(estimates[name]["estimate"] - mean) < deviation, name
        assert 0.75 * deviation < estimates[name]["standard_error"] < 1.25 * deviation, name
        assert estimates[name]["published"] == mean


def test_json_is_one_object_and_nothing_else(answer):
    found = json.loads(answer.stdout)
    assert answer.stdout.count("\n") == 1
    assert list(found) == ["estimates", "seconds"]
    assert list(found["estimates"]) == list(NAMES)
    assert list(found["seconds"]) == ["trace", "compile", "run", "total"]
    for entry in found["estimates"].values():
        assert list(entry) == ["estimate", "standard_error", "published"]


def test_the_phases_make_up_no_more_than_the_total(answer):
    seconds = json.loads(answer.stdout)["seconds"]
    assert all(value > 0 for value in seconds.values())
    assert seconds["trace"] + seconds["compile"] + seconds["run"] <= seconds["total"]


def test_progress_is_shown_on_standard_error(answer):
    assert "64 starts: 100%" in answer.stderr


def test_the_plot_is_written(answer, folder):
    image = (folder / "fit.png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > 10_000


@pytest.mark.slow
def test_the_text_lists_every_parameter(answer, folder):
    done = demo("--plot", "again.svg", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(answer.stdout)["estimates"]
    for name in NAMES:
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(name))
        assert f"{found[name]['estimate']:.4f}" in line
        assert f"{found[name]['standard_error']:.4f}" in line
    for phase in ("trace", "compile", "run", "total"):
        assert f"{phase} " in done.stdout
    assert "<svg" in (folder / "again.svg").read_text()


def test_the_fit_recovers_the_parameters_of_made_up_pelts():
    noise = 0.02 * np.random.default_rng(0).standard_normal((21, 2))
    pelts = np.exp(np.asarray(log_trajectory(POINT, 20))[::STEPS_PER_YEAR] + noise)
    result = fit(Clock(), pelts, lambda steps, value: None)
    error = np.abs(result.estimates - np.exp(POINT))[:6]
    assert np.all(error < 4 * result.standard_errors[:6])
    assert np.all(result.standard_errors[:6] < 0.05 * result.estimates[:6])
    assert np.all(result.log_errors < 0.05)


def test_the_trajectory_solves_the_equations():
    a, b, c, d, hare0, lynx0 = np.exp(POINT[:6])
    exact = solve_ivp(
        lambda _, z: [(a - b * z[1]) * z[0], (d * z[0] - c) * z[1]],
        (0, 20),
        [hare0, lynx0],
        t_eval=np.arange(21),
        rtol=1e-10,
        atol=1e-10,
    )
    found = np.asarray(log_trajectory(POINT, 20))[::STEPS_PER_YEAR]
    np.testing.assert_allclose(found, np.log(exact.y.T), atol=1e-5)


def test_the_gradient_and_hessian_agree_with_differences():
    logs = np.log(read_table(PELTS).pelts)
    value = fnx.jit(lambda point: negative_log_posterior(point, logs))
    gradient = fnx.jit(fnx.grad(lambda point: negative_log_posterior(point, logs)))
    hessian = np.asarray(fnx.hessian(lambda point: negative_log_posterior(point, logs))(POINT))
    steps = 1e-5 * np.eye(8)
    slopes = [(float(value(POINT + h)) - float(value(POINT - h))) / 2e-5 for h in steps]
    bends = [np.asarray(gradient(POINT + h) - gradient(POINT - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(gradient(POINT), slopes, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(hessian, bends, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-8, atol=1e-8)


def test_the_shipped_table():
    table = read_table(PELTS)
    assert table.years.tolist() == list(range(1900, 1921))
    assert table.pelts.shape == (21, 2)
    assert table.pelts[3].tolist() == [77.4, 35.2]
    assert "Hewitt" in PELTS.read_text(encoding="utf-8").splitlines()[1]


def shipped(**changes: str) -> str:
    """The shipped table with lines replaced; ``line5="..."`` replaces the fifth."""
    lines = PELTS.read_text(encoding="utf-8").splitlines()
    for key, line in changes.items():
        lines[int(key.removeprefix("line")) - 1] = line
    return "\n".join(lines) + "\n"


BAD = {
    "empty": ("", "empty"),
    "only comments": ("# nothing\n\n", "empty"),
    "only the head": ("year,hare,lynx\n", "cut short"),
    "few years": ("\n".join(shipped().splitlines()[:8]), "cut short"),
    "cut within a line": (shipped()[:-10], "line 24: 1 of 3 values"),
    "cut within a number": (shipped()[:-4], "line 24"),
    "no head": ("\n".join(shipped().splitlines()[3:]), "expected the columns year,hare,lynx"),
    "not a number": (shipped(line7="1903,many,35.2"), "line 7: hare is 'many'"),
    "missing value": (shipped(line7="1903,,35.2"), "line 7: hare is ''"),
    "not finite": (shipped(line7="1903,77.4,nan"), "line 7: lynx is nan"),
    "zero": (shipped(line7="1903,77.4,0"), "line 7: lynx is 0"),
    "negative": (shipped(line7="1903,-77.4,35.2"), "line 7: hare is -77.4"),
    "a year is missing": (shipped(line7="# gone"), "line 8: year 1904 follows 1902"),
    "too many values": (shipped(line7="1903,77.4,35.2,1"), "line 7: 4 of 3 values"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_gets_one_clear_line(case, tmp_path, capsys):
    text, expected = BAD[case]
    file = tmp_path / "table.csv"
    file.write_text(text, encoding="utf-8")
    _expect_one_line(["--data", str(file)], expected, capsys)


def test_an_absent_table_gets_one_clear_line(tmp_path, capsys):
    _expect_one_line(["--data", str(tmp_path / "none.csv")], "No such file", capsys)


def test_a_folder_as_a_table_gets_one_clear_line(tmp_path, capsys):
    _expect_one_line(["--data", str(tmp_path)], "cannot be read", capsys)


def test_bytes_as_a_table_get_one_clear_line(tmp_path, capsys):
    (tmp_path / "table.csv").write_bytes(b"\xff\xfe\x00year")
    _expect_one_line(["--data", str(tmp_path / "table.csv")], "not a text file", capsys)


def test_a_plot_in_no_folder_gets_one_clear_line(tmp_path, capsys):
    _expect_one_line(["--plot", str(tmp_path / "none" / "x.png")], "no such folder", capsys)


def test_a_bad_table_ends_the_process_with_status_2(tmp_path):
    done = demo("--data", "none.csv", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def _expect_one_line(arguments, expected, capsys):
    assert command.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert expected in said.err


def test_a_table_without_its_last_newline_is_whole(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(shipped().rstrip("\n"), encoding="utf-8")
    assert len(read_table(file).years) == 21


def test_errors_are_value_errors(tmp_path):
    with pytest.raises(ValueError, match="none"):
        read_table(tmp_path / "none.csv")
    assert issubclass(TableError, ValueError)
