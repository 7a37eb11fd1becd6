"""Random programs of one member: chains of steps, most of them with collectives.

Arrays stay of their shapes and dtypes, and of numbers around 1, whatever steps follow each other. What a
collective gives, what went into it, and both are read afterwards.
"""

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax

DTYPES = "float64 float32 complex128 complex64 float16 bfloat16 int32 int8 uint16 bool".split()


def bound(v):
    """Numbers of a size that no chain of steps makes large; others as they are."""
    return (v / (1 + jnp.abs(v))).astype(v.dtype) if jnp.issubdtype(v.dtype, jnp.inexact) else v


def plus(v, w):
    return v ^ w if v.dtype == bool else v + w


def as_of(w, v):
    return (w if jnp.iscomplexobj(v) else w.real).astype(v.dtype)


class Steps:
    """The steps over the axes `names` of sizes `sizes`; each takes and gives a list of arrays."""

    def __init__(self, sizes, rng):
        self.names, self.sizes = list(sizes), sizes
        self.along = tuple(self.names) if rng.random() < 0.3 else str(rng.choice(self.names))
        self.n = (
            sizes[self.along] if isinstance(self.along, str) else int(np.prod([*sizes.values()]))
        )
        self.rng = rng

    def total(self, v, groups=None):
        name = "a" if groups else self.along
        wide = v.astype("int32") if v.dtype == bool else v
        return bound(lax.psum(wide, name, axis_index_groups=groups).astype(v.dtype))

    def reduce(self, v, w):
        return [self.total(v), w]

    def reduce_and_read(self, v, w):
        s = self.total(v)
        return [bound(plus(v, s)), self.total(s)]

    def reduce_tree(self, v, w):
        s, t = fnx.tree.map(self.total, (v, w))
        return [bound(plus(s, v)), t]

    def extrema(self, v, w):
        return [v if jnp.iscomplexobj(v) else lax.pmax(v, self.along), w]

    def gather(self, v, w):
        d = int(self.rng.integers(v.ndim))
        rows = lax.all_gather(v, self.along, axis=d, tiled=True)
        return [lax.slice_in_dim(rows, rows.shape[d] - v.shape[d], rows.shape[d], axis=d), w]

    def scatter(self, v, w):
        d = int(self.rng.integers(v.ndim))
        wide = jnp.concatenate([v.astype("int32") if v.dtype == bool else v] * self.n, d)
        part = lax.psum_scatter(wide, self.along, scatter_dimension=d, tiled=True)
        return [bound(part.astype(v.dtype)), w]

    def exchange(self, v, w):
        given = jnp.stack([v, *[as_of(w, v)] * (self.n - 1)])
        rows = lax.all_to_all(given, self.along, 0, 0)
        return [rows[int(self.rng.integers(self.n))], w]

    def permute(self, v, w):
        order = self.rng.permutation(self.n)
        pairs = [(k, int(order[k])) for k in range(int(self.rng.integers(self.n + 1)))]
        return [bound(plus(v, lax.ppermute(v, self.along, pairs))), w]

    def groups(self, v, w):
        halves = self.rng.permutation(self.sizes["a"]).reshape(2, -1).tolist()
        return [self.total(v, halves), w]

    def number(self, v, w):
        k = lax.axis_index(self.along)
        return [bound(plus(v, (k % 2).astype(v.dtype))), w]

    def scan(self, v, w):
        def step(c, _):
            return (self.total(c[1]), bound(plus(c[0], self.total(c[0])))), c[0]

        (a, b), rows = lax.scan(step, (v, as_of(w, v)), None, 3)
        return [bound(plus(a, rows[1])), b]

    def loop(self, v, w):
        going = lambda c: lax.psum(c[0], self.along) < 3 * self.n
        return [lax.while_loop(going, lambda c: (c[0] + 1, self.total(c[1])), (0, v))[1], w]

    def branch(self, v, w):
        positive = lax.psum(jnp.sum(jnp.abs(v).astype("float32")), self.along) > 1
        return [lax.cond(positive, self.total, lambda u: bound(plus(u, u)), v), w]

    def mapped(self, v, w):
        return [fnx.vmap(self.total, in_axes=1, out_axes=1)(v), w]

    def written(self, v, w):
        return [v.at[0].set(self.total(v)[-1]), w]


KINDS = [name for name in vars(Steps) if name[0] != "_" and name != "total"]


def random_member(rng, sizes):
    """The program of one member of axes of these sizes, "a" among them: of two arrays, to two arrays."""
    chosen = [
        (str(rng.choice(KINDS)), int(rng.integers(1 << 30))) for _ in range(rng.integers(3, 8))
    ]

    def member(v, w):
        for kind, seed in chosen:
            v, w = getattr(Steps(sizes, np.random.default_rng(seed)), kind)(v, w)[::-1]
        return v, w

    return member, chosen


def random_array(rng, dtype, shape):
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    if dtype == "bool":
        x = x > 0
    elif "int" in dtype:
        x = rng.integers(0, 50, size=shape)
    return jnp.asarray(x).astype(dtype)
