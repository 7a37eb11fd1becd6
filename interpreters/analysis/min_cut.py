"""Maximum flow and minimum cut of a directed graph (Dinic's algorithm)."""

from math import inf


class Graph:
    """Nodes are numbers from 0; edges have capacities, `inf` allowed."""

    def __init__(self, nodes: int = 0):
        self.out: list[list[int]] = [[] for _ in range(nodes)]  # numbers of edges, by tail
        self.head: list[int] = []
        self.room: list[float] = []  # capacity left; edge e ^ 1 is the reverse of edge e

    def node(self) -> int:
        """A new node."""
        self.out.append([])
        return len(self.out) - 1

    def edge(self, tail: int, head: int, capacity: float = inf) -> None:
        for a, b, room in ((tail, head, capacity), (head, tail, 0.0)):
            self.out[a].append(len(self.head))
            self.head.append(b)
            self.room.append(room)

    def _levels(self, source: int, sink: int) -> list[int]:
        level = [-1] * len(self.out)
        level[source] = 0
        frontier = [source]
        while frontier and level[sink] < 0:
            ahead = []
            for a in frontier:
                for e in self.out[a]:
                    b = self.head[e]
                    if level[b] < 0 and self.room[e] > 0:
                        level[b] = level[a] + 1
                        ahead.append(b)
            frontier = ahead
        return level

    def _push_paths(self, source: int, sink: int, level: list[int]) -> float:
        """Fill up the level graph, by depth-first search with a stack of edges."""
        total, path = 0.0, []
        at = [0] * len(self.out)  # per node, the edges before this one lead nowhere
        a = source
        while True:
            if a == sink:
                amount = min(self.room[e] for e in path)
                total += amount
                for k in range(len(path) - 1, -1, -1):
                    e = path[k]
                    self.room[e] -= amount
                    self.room[e ^ 1] += amount
                    if self.room[e] <= 0:
                        cut = k
                del path[cut:]
                a = self.head[path[-1]] if path else source
            elif at[a] < len(self.out[a]):
                e = self.out[a][at[a]]
                b = self.head[e]
                if self.room[e] > 0 and level[b] == level[a] + 1:
                    path.append(e)
                    a = b
                else:
                    at[a] += 1
            elif path:
                path.pop()
                a = self.head[path[-1]] if path else source
                at[a] += 1
            else:
                return total

    def cut(self, source: int, sink: int) -> tuple[float, set[int]]:
        """The least capacity of a cut, and the nodes on the sink's side of the one nearest to it."""
        flow = 0.0
        while True:
            level = self._levels(source, sink)
            if level[sink] < 0:
                break
            flow += self._push_paths(source, sink, level)
        side, todo = {sink}, [sink]
        while todo:
            for e in self.out[todo.pop()]:
                b = self.head[e]  # the edge from b to here is e ^ 1
                if b not in side and self.room[e ^ 1] > 0:
                    side.add(b)
                    todo.append(b)
        return flow, side
