"""A drawn graph's places: layers by longest path, fewer crossings by barycentres, edges over many layers.

The method is Sugiyama, Tagawa and Toda's (1981): an edge over several layers gets a place in each.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

GAP, LAYER_GAP, BEND = (
    14.0,
    34.0,
    6.0,
)  # between nodes, between layers, and what a passing edge takes
SWEEPS = 6


@dataclass
class Node:
    """Something drawn: its size, and, when it is laid out, its layer and its upper left corner.

    `room` is the width that it takes with the labels at its edges; `bottom` is where its layer ends.
    Nodes of column 1 stand beside those of column 0, to the right of all of them.
    """

    width: float
    height: float
    what: Any = None
    room: float = 0.0
    layer: int = 0
    column: int = 0
    x: float = 0.0
    y: float = 0.0
    bottom: float = 0.0

    def __post_init__(self) -> None:
        self.room = max(self.room, self.width)

    @property
    def middle(self) -> float:
        """Where edges meet it."""
        return self.x + self.width / 2


@dataclass
class Edge:
    """From one node to another; `through` is what it passes on its way."""

    start: Node
    end: Node
    label: str = ""
    through: list[Node] = field(default_factory=list)


def _set_layers(nodes: list[Node], edges: list[Edge]) -> None:
    """Each node one layer below the lowest of those that it needs; `nodes` come in such an order."""
    needed: dict[int, list[Node]] = {}
    for e in edges:
        needed.setdefault(id(e.end), []).append(e.start)
    for n in nodes:
        n.layer = max([1 + m.layer for m in needed.get(id(n), ())], default=0)


def _neighbours(edges: list[Edge]) -> tuple[dict[int, list[Node]], dict[int, list[Node]]]:
    """What is above, and below, each node, passing edges cut at each layer."""
    above: dict[int, list[Node]] = {}
    below: dict[int, list[Node]] = {}
    for e in edges:
        path = [e.start, *e.through, e.end]
        for a, b in itertools.pairwise(path):
            below.setdefault(id(a), []).append(b)
            above.setdefault(id(b), []).append(a)
    return above, below


def _order(layers: list[list[Node]], above: dict, below: dict) -> None:
    """Order the nodes of each layer by the mean place of their neighbours, down and up."""
    place = {id(n): k / len(layer) for layer in layers for k, n in enumerate(layer)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for layer in layers if down else layers[::-1]:
            means = []
            for n in layer:
                at = [place[id(m)] for m in near.get(id(n), ())]
                means.append(sum(at) / len(at) if at else place[id(n)])
            order = sorted(range(len(layer)), key=lambda k: (layer[k].column, means[k]))
            layer[:] = [layer[k] for k in order]
            place.update({id(n): k / len(layer) for k, n in enumerate(layer)})


def _place(layer: list[Node], wanted: list[float]) -> None:
    """Nodes beside each other, as near to the middles that they want as gaps and order allow."""
    blocks: list[list[float]] = []  # of nodes that touch: first, count, sum of wanted starts, width
    for k, (n, w) in enumerate(zip(layer, wanted, strict=True)):
        blocks.append([k, 1, w - n.width / 2, n.room + GAP])
        while len(blocks) > 1:
            (_, c, total, width), last = blocks[-2], blocks[-1]
            if total / c + width <= last[2] / last[1]:
                break
            blocks.pop()
            blocks[-1][1] += last[1]
            blocks[-1][2] += last[2] - width * last[1]
            blocks[-1][3] += last[3]
    for first, many, total, _ in blocks:
        x = total / many
        for n in layer[int(first) : int(first + many)]:
            n.x = x
            x += n.room + GAP


def _columns(layer: list[Node], wanted: list[float]) -> None:
    for column in (0, 1):
        mine = [k for k, n in enumerate(layer) if n.column == column]
        if mine:
            _place([layer[k] for k in mine], [wanted[k] for k in mine])


def _apart(nodes: list[Node]) -> None:
    """Move the second column beside the first."""
    left, right = [[n for n in nodes if n.column == c] for c in (0, 1)]
    if left and right:
        shift = max([n.x + n.room for n in left]) + 2 * GAP - min([n.x for n in right])
        for n in right:
            n.x += shift


def lay_out(nodes: list[Node], edges: list[Edge]) -> tuple[float, float]:
    """Give all nodes, and what edges pass, their places; the width and height of the whole."""
    if not nodes:
        return 0.0, 0.0
    _set_layers(nodes, edges)
    layers: list[list[Node]] = [[] for _ in range(1 + max([n.layer for n in nodes]))]
    for n in nodes:
        layers[n.layer].append(n)
    for e in edges:
        for k in range(e.start.layer + 1, e.end.layer):
            e.through.append(Node(BEND, 0.0, layer=k, column=e.end.column))
            layers[k].append(e.through[-1])
    above, below = _neighbours(edges)
    _order(layers, above, below)
    for layer in layers:
        _columns(layer, [sum([m.room + GAP for m in layer]) / 2] * len(layer))
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wanted = [
                sum([m.middle for m in near[id(n)]]) / len(near[id(n)])
                if near.get(id(n))
                else n.middle
                for n in layer
            ]
            _columns(layer, wanted)
    _apart([n for layer in layers for n in layer])
    left, y = min([n.x for layer in layers for n in layer]), 0.0
    for layer in layers:
        tall = max([n.height for n in layer])
        for n in layer:
            n.x -= left
            n.y, n.bottom = y, y + tall
        y += tall + LAYER_GAP
    return max([n.x + n.room for layer in layers for n in layer]), y - LAYER_GAP


__all__ = ["Edge", "Node", "lay_out"]
