"""Arrays, keys and tracers in notebooks: what is told, that it is well-formed, and never a lie."""

import re
import subprocess
import sys

import numpy as np
import pytest
from markup import page

import fnx
import fnx.numpy as jnp
from fnx.core import dtypes, policy
from fnx.core.array import ConcreteArray
from fnx.core.buffer import Buffer
from fnx.observe.displays import markup, statistics, strip

LARGE = policy.SUMMARISED_ELEMENTS


def test_importing_fnx_loads_no_display():
    code = (
        "import sys, fnx, fnx.numpy as jnp; x = fnx.jit(lambda x: x + 1)(jnp.ones(2));"
        "print([m for m in sys.modules if m.startswith('fnx.observe')]);"
        "x._repr_html_(); print('fnx.observe.displays.arrays' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


def test_an_array_tells_what_it_is():
    x = jnp.array([[1.0, 2.0], [3.0, 6.0]], jnp.float32)
    shown = page(x)
    for part in ("(2, 2)", "float32", "16 B", "1 / 3 / 6", "NaN 0", "infinities 0", str(x.device)):
        assert part in shown.text, part
    assert "weak" not in shown.text
    assert "sampled" not in shown.text
    assert len(shown.pictures) == 1
    assert "prefers-color-scheme:dark" in shown.html
    assert repr(x).startswith("Array([[1., 2.]")


@pytest.mark.parametrize("dtype", [d.name for d in dtypes.ALL])
def test_every_dtype(dtype):
    for shape in ((), (0,), (3,), (2, 3), (2, 0, 3), (2, 2, 3)):
        x = jnp.ones(shape, dtype)
        shown = page(x)
        assert str(shape) in shown.text
        assert dtype in shown.text
        assert ("no elements" in shown.text) == (x.size == 0)
        assert len(shown.pictures) == (x.size > 0 and x.ndim > 0)
        assert ("NaN" in shown.text) == (x.size > 0 and dtypes.kind(x.dtype) in "fc")


def test_what_is_not_finite_is_counted_and_left_out_of_the_mean():
    x = jnp.array([1.0, np.nan, np.inf, -np.inf, 3.0, np.nan])
    shown = page(x)
    assert "1 / 2 / 3 of finite elements" in shown.text
    assert "NaN 2" in shown.text
    assert "infinities 2" in shown.text
    for name, colour in strip.legend(np.asarray(x)[None]):
        assert f"\u25a0 {name}" in shown.text
        assert shown.html.count(colour) == 2
    assert "no finite element" in page(jnp.full(3, np.nan)).text


def test_numbers_that_overflow_sums():
    assert "1e+308 / 1e+308 / 1e+308" in page(jnp.full(3, 1e308)).text
    assert "-1e+308 / 0 / 1e+308" in page(jnp.array([-1e308, 1e308])).text
    assert "60000 / 60000 / 60000" in page(jnp.full(4000, 60000.0, jnp.float16)).text
    assert str(2**64 - 1) in page(jnp.array([2**64 - 1], jnp.uint64)).text
    assert f"{-(2**63)} / " in page(jnp.array([-(2**63), 5])).text


def test_complex_numbers_by_magnitude_and_booleans_by_count():
    assert "magnitude 5 / 5 / 5" in page(jnp.array([3 + 4j, -5j])).text
    half = page(jnp.array([complex(np.nan, 1), complex(1, np.inf), 2]))
    assert "2 / 2 / 2 of finite" in half.text
    assert "NaN 1" in half.text
    assert "true 3 of 4 (75 %)" in page(jnp.array([True, True, False, True])).text


def test_weak_types_and_rank_0():
    shown = page(jnp.asarray(2.5))
    assert "weak" in shown.text
    assert "2.5 / 2.5 / 2.5" in shown.text
    assert shown.pictures == []


def test_more_axes_show_their_first_slice_and_say_so():
    x = jnp.zeros((2, 3, 4, 5)).at[0, 0, 1, 2].set(1.0)
    shown = page(x)
    assert "first slice, x[0, 0], of (2, 3, 4, 5)" in shown.text
    fills = [p.get("fill") for p in shown.pictures[0].iter() if p.get("d")]
    assert sorted(fills) == sorted([strip.colours()[0], strip.colours()[-1]])


def test_large_arrays_are_sampled_and_say_so():
    x = jnp.zeros(4 * LARGE)
    shown = page(x)
    assert f"sampled: {policy.SAMPLED_ELEMENTS:,} of {4 * LARGE:,} elements" in shown.text
    assert f"each cell is one element of {4 * LARGE:,}" in shown.text
    assert "sampled" not in page(jnp.zeros(LARGE)).text


def test_a_sample_sees_all_columns_and_is_the_same_each_time():
    columns = 1 << 10
    value = np.broadcast_to(np.arange(columns), (LARGE // columns * 8, columns)).copy()
    seen = statistics.sample(value)
    assert seen.size == policy.SAMPLED_ELEMENTS
    assert np.unique(seen).size > 0.99 * columns
    assert (seen == statistics.sample(value)).all()
    found = statistics.summary(value)
    assert found.sampled
    assert abs(found.mean - (columns - 1) / 2) < 0.01 * columns


@pytest.mark.parametrize("shape", [(1,), (95,), (97,), (1000,), (1, 500), (25, 3), (100, 100)])
def test_cells_are_means(shape):
    value = np.arange(np.prod(shape), dtype=float).reshape(shape)
    found, steps = statistics.cells(value)
    grid = value.reshape(1, -1) if value.ndim == 1 else value
    assert all(f <= n and f * s >= n for f, s, n in zip(found.shape, steps, grid.shape))
    first = grid[: grid.shape[0] // found.shape[0] or 1, : grid.shape[1] // found.shape[1] or 1]
    assert found[0, 0] == first.mean()
    assert found.min() >= value.min()
    assert found.max() <= value.max()


def test_runs_of_one_colour_cover_the_grid():
    rng = np.random.default_rng(1)
    grid = rng.choice([0.0, 1.0, 2.0, np.nan, np.inf, -np.inf], (7, 11))
    drawn = strip.strip(grid, "")
    width, height = map(int, re.search(r'width="(\d+)" height="(\d+)"', drawn).groups())
    areas = [int(h) * int(v) for h, v in re.findall(r"h(\d+)v(\d+)h-", drawn)]
    assert sum(areas) == width * height
    assert drawn.count("<path") == 6


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float32", "float64", "int64"])
def test_what_is_constant_but_for_rounding_has_one_colour(dtype):
    turns = np.exp(1j * np.linspace(0, 20, 200))
    x = turns if dtype.startswith("complex") else 0.1 * 3 / 0.3 * np.abs(turns) * 7
    for shape in ((200,), (10, 20)):
        constant = jnp.array(x.reshape(shape), dtype)
        assert page(constant).html.count("<path") == 1
        assert page(constant.at[(0,) * len(shape)].multiply(2)).html.count("<path") == 2


def test_tables_look_alike_where_notebooks_style_tables_of_their_own():
    """Jupyter aligns cells to the right by a rule with two classes and two elements."""
    rules = markup.STYLE.replace("\n", "").split("}")
    selectors = [one for rule in rules for one in rule.partition("{")[0].split(",")]
    of_tables = [one for one in selectors if re.search(r"[ >](table|tr|th|td)$", one)]
    assert len(of_tables) >= 4
    assert all(one.count(".fnx") > 2 for one in of_tables)


def test_long_texts_are_folded_and_cut():
    assert ("details", {"open": "open"}) in page(jnp.arange(3)).tags
    assert ("details", {}) in page(jnp.arange(900)).tags
    assert "cut:" in page(jnp.linspace(0, 1, 1000) * (1 / 3 + 1e-99j)).text
    assert "Array([" not in page(jnp.zeros((6,) * 6)).text  # corners of which are all of it


def test_deleted_arrays():
    x = jnp.ones((2, 3))
    x.delete()
    shown = page(x)
    assert "deleted" in shown.text
    assert "(2, 3)" in shown.text
    assert shown.pictures == []
    key = fnx.random.key(0)
    key.delete()
    assert "deleted" in page(key).text


def test_keys_show_words_and_no_statistics():
    shown = page(fnx.random.split(fnx.random.key(3), 4))
    assert "random keys" in shown.text
    assert "(4,)" in shown.text
    assert "key<fry>" in shown.text
    assert "greatest" not in shown.text
    assert shown.pictures == []
    assert "0 3" in page(fnx.random.key(3)).text


def test_the_class_that_keys_say_they_have_prints_itself():
    """IPython asks that class, and not the one they have, how to print them."""
    key = fnx.random.key(0)
    assert key.__class__ is not type(key)
    assert "__repr__" in vars(key.__class__)


def test_numbers_elsewhere_are_not_brought_for_a_display():
    class Far(Buffer):
        device = "far<&>"

        def fetch(self):
            return np.arange(self.size, dtype=self.dtype).reshape(self.shape)

    large = ConcreteArray(Far((2 * LARGE,), np.dtype("f8")))
    shown = page(large)
    assert "too many to bring" in shown.text
    assert "far<&>" in shown.text
    assert large._value._host is None
    assert "0 / 1 / 2" in page(ConcreteArray(Far((3,), np.dtype("f8")))).text


def _seen(transform, *args):
    found = []

    def hostile(x):
        found.append(page(x))
        return x * 2.0

    hostile.__name__ = "<script>alert(1)</script>"
    transform(hostile)(*args)
    return found[0]


@pytest.mark.parametrize(
    ("transform", "what", "argument"),
    [
        (fnx.jit, "jit of", 3.0),
        (fnx.grad, "grad", 3.0),
        (fnx.vmap, "vmap", np.ones(3)),
        (lambda f: lambda x: fnx.jvp(f, (x,), (x,)), "jvp", 3.0),
        (lambda f: fnx.jit(fnx.vmap(fnx.grad(f))), "grad", np.ones(3)),
    ],
)
def test_tracers_never_look_like_values(transform, what, argument):
    shown = _seen(transform, argument)
    assert "Tracer" in shown.text
    assert what in shown.text
    assert "This is no value" in shown.text
    assert "f64[]" in shown.text
    assert "test_displays.py" in shown.text
    assert shown.pictures == []
    assert "least" not in shown.text


def test_tracers_of_nested_transformations_name_them_all():
    shown = _seen(lambda f: fnx.jit(fnx.vmap(f)), np.ones(3))
    assert "inside vmap, within jit of " in shown.text
    shown = _seen(lambda f: fnx.jit(fnx.vmap(fnx.grad(f))), np.ones(3))
    assert "inside grad, within vmap, within jit of " in shown.text


def test_a_tracer_whose_transformation_ended_says_so():
    kept = []
    fnx.jit(lambda x: (kept.append(x), x)[1])(1.0)
    assert "has ended" in page(kept[0]).text


def test_traced_keys():
    found = []
    fnx.jit(lambda k: (found.append(page(k)), fnx.random.uniform(k))[1])(fnx.random.key(0))
    assert "Tracer" in found[0].text
    assert "key<fry>" in found[0].text


def test_sharded_arrays_say_how_they_lie():
    mesh = fnx.make_mesh((1,), ("rows",))
    x = fnx.device_put(jnp.ones(4), fnx.NamedSharding(mesh, fnx.P("rows")))
    assert "NamedSharding" in page(x).text
    assert "rows" in page(x).text
