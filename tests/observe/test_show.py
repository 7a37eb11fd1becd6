"""fnx.show: jaxprs with the user's lines, drawn graphs, derivatives side by side, trees."""

import functools
import itertools
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from markup import page

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy
from fnx.observe.displays import jaxprs, kernels
from fnx.observe.displays.layers import BEND, Edge, Node, lay_out

HERE = __file__


def _model(w, x):
    h = jnp.tanh(x @ w["a"])
    return jnp.sum((h @ w["b"]) ** 2)


W = {"a": jnp.ones((3, 4)), "b": jnp.ones((4, 2))}
X = jnp.ones((5, 3))


def _line(text):
    return 1 + next(k for k, line in enumerate(Path(HERE).read_text().split("\n")) if text in line)


def test_equations_name_and_link_to_the_lines_that_wrote_them():
    shown = fnx.show(_model)(W, X)
    tanh = _line("h = jnp.tanh")
    assert re.search(rf"= tanh d +# test_show.py:{tanh}\n", str(shown))
    assert re.search(rf"= square .*# test_show.py:{tanh + 1}\n", str(shown))
    links = [a for tag, a in page(shown).tags if tag == "a"]
    assert {a["href"].partition("#")[0] for a in links} == {f"file://{HERE}"}
    assert {a["href"].partition("#")[2] for a in links} == {f"L{tanh}", f"L{tanh + 1}"}
    titles = [a["title"] for a in links if "title" in a]
    assert f'test_show.py:{tanh} (_model)\nh = jnp.tanh(x @ w["a"])' in titles


def test_text_is_the_printed_jaxpr_but_for_places():
    made = fnx.make_jaxpr(_model)(W, X)
    lines = str(fnx.show(_model)(W, X)).split("\n")
    assert [line.partition("#")[0].rstrip() for line in lines] == str(made).split("\n")
    assert str(fnx.show(made)) == str(fnx.show(made.jaxpr)) == str(fnx.show(_model)(W, X))


def test_derivatives_stand_beside_what_they_are_of():
    shown = page(fnx.show(fnx.grad(_model))(W, X))
    primal, adjoint = re.findall(r'<div class="side">(.*?)</div>', shown.html, re.DOTALL)
    assert "tanh" in primal
    assert "op adj" not in primal
    assert "tanh" not in adjoint.replace("jnp.tanh", "").replace("operands of tanh", "")
    assert "op adj" in adjoint
    assert "the cotangent of the operands of dot_general" in adjoint
    assert "in (" in re.sub("<.*?>", "", adjoint)
    assert 'class="side"' not in page(fnx.show(_model)(W, X)).html


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.sum(jnp.sin(x) * x),
        lambda x: lax.fori_loop(0, 5, lambda i, s: jnp.sin(s) * i, x).sum(),
        lambda x: lax.cond(x[0] > 0, lambda z: z.sum(), jnp.prod, x),
        fnx.jit(lambda x: jnp.sum(jnp.exp(x) ** 2)),
        lambda x: jnp.sum(jnp.linalg.solve(jnp.eye(3) + x, x)),
        lambda x: 1.0,
    ],
)
def test_each_equation_of_a_derivative_is_on_one_side(f, monkeypatch):
    monkeypatch.setattr(policy, "DISPLAYED_PARAMETER", 10_000)
    for g in (f, fnx.grad(f), fnx.value_and_grad(f), fnx.jit(fnx.grad(f)), fnx.hessian(f)):
        shown = fnx.show(g)(jnp.ones(3))
        page(shown)
        adjoint = jaxprs.adjoint_part(shown.jaxpr)
        sides = jaxprs.Printer().sides(shown.jaxpr, adjoint)
        plain = [line.plain() for side in sides for line in side]
        assert sorted(plain) == sorted(str(shown.jaxpr).split("\n"))


def test_what_is_jitted_as_a_whole_is_shown_as_if_it_were_not():
    plain = fnx.show(fnx.grad(_model))(W, X)
    whole = fnx.show(fnx.jit(fnx.jit(fnx.grad(_model))))(W, X)
    assert str(whole.jaxpr) == str(plain.jaxpr)
    assert 'class="side"' in page(whole).html
    part = fnx.show(lambda x: fnx.jit(jnp.sin)(x) + 1)(1.0)
    assert "jit[" in str(part)
    swapped = fnx.show(lambda x, y: fnx.jit(jnp.subtract)(y, x))(1.0, 2.0)
    assert "jit[" in str(swapped)


def test_nested_jaxprs_are_clusters():
    f = lambda x: lax.scan(lambda c, a: (jnp.sin(c) + a, c), x, jnp.ones(4))
    drawn = page(fnx.show(f)(1.0)).pictures[0]
    texts = ["".join(t.itertext()) for t in drawn.iter() if t.tag.endswith("text")]
    assert "scan" in texts
    assert "sin" in texts
    assert "jaxpr" in texts
    assert "b:f64[4]" in texts
    boxes = [r for r in drawn.iter() if r.tag.endswith("rect")]
    group = max(
        (r for r in boxes if r.get("class") == "group"), key=lambda r: float(r.get("width"))
    )
    inside = [
        r
        for r in boxes
        if float(r.get("x")) > float(group.get("x"))
        and float(r.get("x")) + float(r.get("width"))
        < float(group.get("x")) + float(group.get("width"))
        and float(r.get("y")) > float(group.get("y"))
        and float(r.get("y")) + float(r.get("height"))
        < float(group.get("y")) + float(group.get("height"))
    ]
    assert len(inside) == 7  # two inputs, sin, its conversion, add, two results


def test_shapes_are_on_edges():
    drawn = page(fnx.show(lambda x: jnp.sum(jnp.sin(x)))(jnp.ones(7))).pictures[0]
    labels = [t.text for t in drawn.iter() if t.get("class") == "label"]
    assert labels == ["b:f64[7]", "c:f64[]"]
    edges = [t for t in drawn.iter() if t.get("class") == "edge"]
    assert len(edges) == 3


def _random_graph(seed):
    rng = np.random.default_rng(seed)
    nodes = [Node(*rng.integers(20, 90, 2), what=k, room=rng.integers(0, 150)) for k in range(30)]
    pairs = {tuple(sorted(rng.choice(30, 2, replace=False))) for _ in range(50)}
    return nodes, [Edge(nodes[a], nodes[b]) for a, b in sorted(pairs)]


@pytest.mark.parametrize("seed", range(8))
def test_a_layout_has_no_overlaps_and_edges_go_down(seed):
    nodes, edges = _random_graph(seed)
    width, height = lay_out(nodes, edges)
    passed = [n for e in edges for n in e.through]
    longest = {}
    for k, n in enumerate(nodes):
        above = [longest[id(e.start)] for e in edges if e.end is n]
        longest[id(n)] = 1 + max(above, default=-1)
        assert n.layer == longest[id(n)], k
    for e in edges:
        path = [e.start, *e.through, e.end]
        assert [n.layer for n in path] == list(range(e.start.layer, e.end.layer + 1))
        assert all(a.bottom < b.y for a, b in itertools.pairwise(path))
    everything = [*nodes, *passed]
    for n in everything:
        assert n.x >= -1e-9
        assert n.x + n.room <= width + 1e-9
        assert n.y + n.height <= height + 1e-9
        for m in everything:
            if m is not n and m.layer == n.layer:
                assert n.x + n.room <= m.x + 1e-9 or m.x + m.room <= n.x + 1e-9
    assert all(n.width == BEND for n in passed)


def test_large_jaxprs_are_cut_with_a_note():
    def long(x):
        for _ in range(policy.DISPLAYED_EQUATIONS + 7):
            x = jnp.sin(x)
        return x

    shown = fnx.show(long)(1.0)
    assert "… 7 more equations" in str(shown)
    whole = page(shown)
    assert f"drawn: {policy.DRAWN_EQUATIONS} of {policy.DISPLAYED_EQUATIONS + 7} eq" in whole.text
    assert "… 7 more equations" in whole.text
    both = page(fnx.show(fnx.grad(long))(1.0))
    assert "more equations" in both.text
    nested = page(fnx.show(lambda x: lax.map(long, x))(jnp.ones(2)))
    assert "more equations" in nested.text


def test_code_that_is_in_no_file_has_no_link_and_names_are_escaped():
    source = "def f(x):\n    return jnp.sin(x)\n"
    module = types.ModuleType("made")
    module.jnp = jnp
    exec(compile(source, "<b>&'\"\x01\x7f", "exec"), vars(module))
    module.f.__name__ = "<i>f</i>"
    shown = page(fnx.show(module.f)(1.0))
    assert not [a for tag, a in shown.tags if tag == "a"]
    assert "<i>f</i>" in shown.text
    assert any("<b>&'\"" in a.get("title", "") for _, a in shown.tags)


def test_functions_of_all_kinds():
    x = jnp.ones(3)
    power = functools.partial(jnp.power, x)
    assert "pow" in str(fnx.show(power)(x))
    assert "pow" in str(fnx.show(fnx.tree_util.Partial(jnp.power, x))(x))
    assert "sin" in str(fnx.show(fnx.jit(jnp.sin))(x))
    assert "mul" in str(fnx.show(lambda x, n: x * n, static_argnums=1)(x, 3))
    assert page(fnx.show(lambda: ())()).text.count("0 equations") == 1
    with pytest.raises(TypeError):
        fnx.show(jnp.sin)("a")


def test_trees_show_types(monkeypatch):
    key = fnx.random.key(0)
    tree = {"w": [jnp.ones((2, 3), jnp.float32), np.zeros(4)], "<k>": (key, None, 2.5, "a<b>")}
    text = str(fnx.show(tree))
    for part in (
        "['w'][0]    f32[2,3]",
        "ndarray float64[4]",
        "key<fry>[]",
        "float: 2.5",
        "str: 'a<b>'",
    ):
        assert part in text, part
    shown = page(fnx.show(tree))
    assert "leaves: 5" in shown.text
    assert "a<b>" in shown.text
    assert str(fnx.show(None)) == str(fnx.show([])) == "no leaves"
    many = fnx.show(list(range(policy.DISPLAYED_LEAVES + 3)))
    assert "… 3 more leaves" in str(many)
    assert "… 3 more leaves" in page(many).text
    found = []
    fnx.jit(lambda x: found.append(str(fnx.show([x]))))(1.0)
    assert "Tracer<f64[]*> of jit" in found[0]
    treescope = types.ModuleType("treescope")
    treescope.__spec__ = object()
    treescope.render_to_html = lambda x: "<div>by treescope</div>"
    monkeypatch.setitem(sys.modules, "treescope", treescope)
    assert "by treescope" in page(fnx.show(tree)).text
    treescope.render_to_html = lambda x: 1 / 0
    assert "leaves: 5" in page(fnx.show(tree)).text


def test_show_loads_when_it_is_asked_for():
    code = (
        "import sys, fnx; print([m for m in sys.modules if m.startswith('fnx.observe')]);"
        "fnx.show; print('fnx.observe.show' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


def _chain(x):
    y = jnp.exp(-x) * jnp.sin(x) + 1.0
    return jnp.sum((y @ jnp.ones((40, 30))) ** 2)


def _titles(f, *args):
    return re.findall(r">fused: (\d+) equations<", fnx.show(f)(*args)._repr_html_())


def test_fused_kernels_are_clusters():
    x = jnp.ones((50, 40))
    assert _titles(_chain, x) == ["5", "2"]  # around a product of matrices
    assert _titles(lambda x: x + 1.0, x) == []
    assert _titles(lambda x: jnp.sort(jnp.sin(x) + 1.0), x) == ["2"]
    jaxpr = fnx.show(_chain)(x).jaxpr
    groups = kernels.clusters(jaxpr, kernels.kernels(jaxpr), ())
    assert sorted(k for ks in groups for k in ks) == list(range(len(jaxpr.eqns)))
    names = [[jaxpr.eqns[k].prim.name for k in ks] for ks in groups]
    assert ["dot_general"] in names
    assert names[-1] == ["square", "reduce_sum"]


@pytest.mark.parametrize(
    "f", [_chain, fnx.grad(_chain), fnx.grad(lambda x: jnp.sum(jnp.tanh(x) ** 3))]
)
def test_clusters_come_after_what_they_need(f):
    jaxpr = fnx.show(f)(jnp.ones((50, 40))).jaxpr
    adjoint = jaxprs.adjoint_part(jaxpr)
    known = set(jaxpr.inputs)
    for ks in kernels.clusters(jaxpr, kernels.kernels(jaxpr), adjoint):
        assert len({k in adjoint for k in ks}) == 1
        for k in ks:
            assert all(a in known for a in jaxpr.eqns[k].inputs if type(a).__name__ == "Var")
            known.update(jaxpr.eqns[k].outs)


def test_a_circle_of_kernels_is_drawn_apart():
    """a is in one kernel with c, which needs b, which needs a."""
    jaxpr = fnx.show(lambda x: jnp.cos(jnp.sort(jnp.sin(x))))(jnp.ones(50)).jaxpr
    a, b, c = [e.outs[0] for e in jaxpr.eqns]
    groups = kernels.clusters(jaxpr, {a: "kernel 1", b: "kernel 2", c: "kernel 1"}, ())
    assert groups == [[0], [1], [2]]


def test_the_graph_has_the_adjoint_beside_the_primal():
    html = page(fnx.show(fnx.grad(_model))(W, X)).html
    boxes = re.findall(r'<rect class="(box[^"]*)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', html)
    primal = [float(x) + float(w) for kind, x, w in boxes if kind == "box"]
    adjoint = [float(x) for kind, x, _ in boxes if kind == "box adj"]
    assert primal
    assert adjoint
    assert max(primal) < min(adjoint)


def test_what_is_large_or_cannot_be_compiled_has_no_clusters(monkeypatch):
    def fails(*given):
        raise NotImplementedError

    monkeypatch.setattr(kernels.pipeline, "build", fails)
    assert _titles(_chain, jnp.ones((50, 40))) == []
    monkeypatch.undo()
    monkeypatch.setattr(policy, "DRAWN_EQUATIONS", 3)
    assert _titles(_chain, jnp.ones((50, 40))) == []
