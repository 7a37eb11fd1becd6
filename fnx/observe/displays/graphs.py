"""A jaxpr as a drawn graph: equations as boxes, nested jaxprs as clusters, types on edges; SVG."""

from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var, subjaxprs
from fnx.observe.displays import markup
from fnx.observe.displays.jaxprs import Names, adjoint_part, count, link, nested
from fnx.observe.displays.kernels import clusters, kernels
from fnx.observe.displays.layers import Edge, Node, lay_out

CHARACTER, LINE, PAD = 6.7, 16.0, 8.0  # sizes of text of 11 pixels, and around it
SMALL_CHARACTER = 6.1  # of one of 10 pixels


class _Cluster:
    """The drawing of a jaxpr: what is in it, laid out, and its size."""

    def __init__(
        self, jaxpr: Jaxpr, budget: list[int], fused: dict[Var, str], names: Names | None = None
    ):
        self.names, self.jaxpr, self.fused = names or Names(jaxpr), jaxpr, fused
        self.adjoint = adjoint_part(jaxpr)
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.cut = 0
        made: dict[Var, Node] = {}
        used = {a for e in jaxpr.eqns for a in e.inputs} | set(jaxpr.outs)
        inside = names is not None  # of a kernel, whose operands lead to it as a whole
        for v in () if inside else jaxpr.inputs:
            if v in used:  # one that nobody reads would stand alone
                made[v] = self._add(_Box(f"{self.names(v)}", v.aval.str_short(), "input"))
        groups = (
            [[k] for k in range(len(jaxpr.eqns))]
            if inside
            else clusters(jaxpr, fused, self.adjoint)
        )
        for ks in groups:
            if budget[0] <= 0:
                self.cut += len(ks)
                continue
            node = self._add(self._box(ks, budget))
            eqns = [jaxpr.eqns[k] for k in ks]
            own = {v for e in eqns for v in e.outs}
            self._connect(made, [a for e in eqns for a in e.inputs if a not in own], node)
            made.update(dict.fromkeys(own, node))
        for k, a in () if inside else enumerate(jaxpr.outs):
            if isinstance(a, Literal) or a in made:
                shown = f"result {k}" if len(jaxpr.outs) > 1 else "result"
                adjoint = isinstance(a, Var) and made[a].what.adjoint
                box = _Box(shown, a.aval.str_short(), "output", adjoint)
                self._connect(made, [a], self._add(box))
        for node in self.nodes:
            node.column = int(node.what.adjoint)
        for edge in self.edges:
            right = edge.start.width / 2 + SMALL_CHARACTER * (len(edge.label) + 1)
            edge.start.room = max(edge.start.room, right if edge.label else 0.0)
        self.width, self.height = lay_out(self.nodes, self.edges)

    def _box(self, ks: list[int], budget: list[int]) -> "_Box":
        """An equation, or several that are one kernel."""
        if len(ks) == 1:
            budget[0] -= 1
            return _Box.of(self.jaxpr.eqns[ks[0]], ks[0] in self.adjoint, budget, self.fused)
        eqns = [self.jaxpr.eqns[k] for k in ks]
        own = {v for e in eqns for v in e.outs}
        inputs = dict.fromkeys([a for e in eqns for a in e.inputs if isinstance(a, Var)])
        part = Jaxpr([v for v in inputs if v not in own], eqns, [v for e in eqns for v in e.outs])
        adjoint = self.adjoint.issuperset(ks)
        box = _Box(f"fused: {len(ks)} equations", "", "kernel", adjoint)
        drawn = _Cluster(part, budget, self.fused, self.names)
        for k, node in zip(ks, drawn.nodes):
            node.what.adjoint = k in self.adjoint
        box._surround([("", drawn)])
        return box

    def _add(self, box: "_Box") -> Node:
        self.nodes.append(Node(box.width, box.height, box))
        return self.nodes[-1]

    def _connect(self, made: dict[Var, Node], atoms: Any, node: Node) -> None:
        for a in dict.fromkeys([a for a in atoms if isinstance(a, Var) and a in made]):
            label = "" if made[a].what.kind == "input" else f"{self.names(a)}:{a.aval.str_short()}"
            self.edges.append(Edge(made[a], node, label))

    def draw(self, x: float, y: float) -> list[str]:
        """Its parts, moved."""
        drawn = [part for e in self.edges for part in self._edge(e, x, y)]
        for n in self.nodes:
            drawn += n.what.draw(x + n.x, y + n.y, n.what.adjoint)
        labelled: set[tuple[int, str]] = set()
        for e in self.edges:
            if e.label and (id(e.start), e.label) not in labelled:
                labelled.add((id(e.start), e.label))
                row = sum([1 for start, _ in labelled if start == id(e.start)])
                left, top = x + e.start.middle + 5, y + e.start.bottom + 1 + 12 * row
                at = f'x="{left:.1f}" y="{top:.1f}"'
                drawn.append(f'<text class="label" {at}>{markup.text(e.label)}</text>')
        return drawn

    @staticmethod
    def _edge(e: Edge, x: float, y: float) -> list[str]:
        points = [(e.start.middle, e.start.y + e.start.height), (e.start.middle, e.start.bottom)]
        points += [(n.middle, at) for n in e.through for at in (n.y, n.bottom)]
        points.append((e.end.middle, e.end.y))
        (px, py), *rest = [(x + a, y + b) for a, b in points]
        path = f"M{px:.1f} {py:.1f}"
        for qx, qy in rest:
            half = (py + qy) / 2
            path += f"C{px:.1f} {half:.1f} {qx:.1f} {half:.1f} {qx:.1f} {qy:.1f}"
            px, py = qx, qy
        tip = f"M{px:.1f} {py:.1f}l-3 -6h6z"
        return [f'<path class="edge" d="{path}"/>', f'<path class="tip" d="{tip}"/>']


class _Box:
    """A box with a title and a line below, around the drawings of nested jaxprs if there are some."""

    def __init__(self, title: str, below: str = "", kind: str = "eqn", adjoint: bool = False):
        self.title, self.below, self.kind, self.adjoint = title, below, kind, adjoint
        self.eqn: Eqn | None = None
        self.inner: list[tuple[str, _Cluster]] = []
        self.width = CHARACTER * max(len(title), len(below)) + 2 * PAD
        self.height = LINE * (1 + bool(below)) + PAD / 2

    @staticmethod
    def of(eqn: Eqn, adjoint: bool, budget: list[int], fused: dict[Var, str]) -> "_Box":
        inside = list(nested(eqn))
        shown = bool(inside) and budget[0] > 0
        hidden = "" if shown or not inside else f"{sum(map(count, subjaxprs(eqn.prim)))} inside"
        literals = [a for a in eqn.inputs if isinstance(a, Literal) and not a.aval.shape]
        numbers = ", ".join([repr(a).partition(":")[0] for a in literals])
        box = _Box(eqn.prim.name[:40], (hidden or numbers)[:40], "eqn", adjoint)
        box.eqn = eqn
        if shown:
            box._surround([(key, _Cluster(sub, budget, fused)) for key, sub in inside])
        return box

    def _surround(self, inner: list[tuple[str, _Cluster]]) -> None:
        self.inner = inner
        wide = [max(c.width, CHARACTER * len(key)) for key, c in inner]
        self.width = max(self.width, sum(wide) + 2 * PAD * len(inner) + PAD)
        self.height += max([c.height for _, c in inner]) + LINE + 3 * PAD

    def draw(self, x: float, y: float, adjoint: bool) -> list[str]:
        kind = "group" if self.kind != "eqn" else "box adj" if adjoint else "box"
        kind = "group kernel" if self.kind == "kernel" else kind
        size = f'width="{self.width:.1f}" height="{self.height:.1f}"'
        radius = 4 if self.kind in ("eqn", "kernel") else 9
        drawn = [f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size} rx="{radius}"/>']
        title = markup.text(self.title)
        middle = x + self.width / 2
        at = f'x="{middle:.1f}" y="{y + 13:.1f}" text-anchor="middle"'
        named = f"<text {at}>{title}</text>"
        source = None if self.eqn is None else self.eqn.source
        drawn.append(named if source is None else link(source, named, "g"))
        if self.below:
            at = f'x="{middle:.1f}" y="{y + 13 + LINE:.1f}" text-anchor="middle"'
            drawn.append(f'<text class="small" {at}>{markup.text(self.below)}</text>')
        top = y + LINE * (1 + bool(self.below)) + PAD
        for key, cluster in self.inner:
            width = max(cluster.width, CHARACTER * len(key)) + PAD
            size = f'width="{width:.1f}" height="{cluster.height + LINE + PAD:.1f}"'
            if key:
                frame = f'x="{x + PAD:.1f}" y="{top:.1f}" {size} rx="4"'
                drawn.append(f'<rect class="group" {frame}/>')
            drawn.append(
                f'<text class="small" x="{x + PAD + 4:.1f}" y="{top + 11:.1f}">{markup.text(key)}</text>'
            )
            drawn += cluster.draw(x + 1.5 * PAD, top + LINE)
            x += width + PAD
        return drawn


def graph(jaxpr: Jaxpr) -> str:
    """The drawing of a jaxpr, of which a large one's first equations."""
    budget = [policy.DRAWN_EQUATIONS]
    drawing = _Cluster(jaxpr, budget, kernels(jaxpr))
    parts = "".join(drawing.draw(PAD, PAD))
    size = f'width="{drawing.width + 2 * PAD:.0f}" height="{drawing.height + 2 * PAD:.0f}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>graph</title>{parts}</svg>'
    total = count(jaxpr)
    if budget[0] > 0:
        return svg
    drawn = policy.DRAWN_EQUATIONS
    return svg + markup.note(f"drawn: {min(drawn, total):,} of {total:,} equations", "warn")


__all__ = ["graph"]
