"""Many small problems side by side: one loop over them, their values in registers."""

import zlib

import numpy as np
import pytest
from small_problems import agrees, kernels, normal

import fnx as jax
import fnx.numpy as jnp
from fnx import lax

LANES = 40

pytestmark = pytest.mark.usefixtures("checked")


# --- what becomes one loop ---------------------------------------------------------------------


def rotated(turn, point):
    """A point turned by a vector (Rodrigues)."""
    angle = jnp.sqrt(jnp.sum(turn**2) + 1e-12)
    axis = turn / angle
    across = jnp.cross(axis, point) * jnp.sin(angle)
    along = axis * jnp.dot(axis, point) * (1.0 - jnp.cos(angle))
    return point * jnp.cos(angle) + across + along


def projected(turn, point):
    x = rotated(turn, point) + jnp.array([0.0, 0.0, 9.0])
    flat = x[:2] / x[2]
    return flat * (1.0 + 0.1 * jnp.sum(flat**2))


def energy(gradient, v):
    """Of a deformation: 3x3 matrices and their products."""
    f = jnp.eye(3) + 0.1 * gradient
    strain = 0.5 * (f.T @ f - jnp.eye(3))
    return 0.5 * jnp.trace(strain) ** 2 + jnp.sum(strain**2) + v @ (f @ v)


def likelihood(a, b):
    """Of a normal distribution, by a Cholesky factor of its covariance."""
    factor = jnp.linalg.cholesky(a @ a.T + jnp.eye(3))
    y = jax.scipy.linalg.solve_triangular(factor, b, lower=True)
    return -0.5 * y @ y - jnp.sum(jnp.log(jnp.diag(factor)))


def estimated(x, p, seen):
    """A step of a Kalman filter: state of 4, observation of 2."""
    look = jnp.eye(2, 4)
    gain = p @ look.T @ jnp.linalg.inv(look @ p @ look.T + jnp.eye(2))
    return x + gain @ (seen - look @ x), (jnp.eye(4) - gain @ look) @ p


ONE_LOOP = {
    "values": (jax.vmap(projected), [(3,), (3,)]),
    "jacrev": (jax.vmap(jax.jacrev(projected, argnums=(0, 1))), [(3,), (3,)]),
    "jacfwd": (jax.vmap(jax.jacfwd(projected)), [(3,), (3,)]),
    "hessian": (jax.vmap(jax.hessian(lambda x: jnp.sin(x[0] * x[1]) * jnp.sum(x**4))), [(3,)]),
    "matrices": (jax.vmap(energy), [(3, 3), (3,)]),
    "gradient of matrices": (jax.vmap(jax.grad(energy, argnums=(0, 1))), [(3, 3), (3,)]),
    "inverse": (jax.vmap(lambda a: jnp.linalg.inv(a + 3 * jnp.eye(3))), [(3, 3)]),
    "gradient of an inverse": (
        jax.vmap(jax.grad(lambda a: jnp.sum(jnp.linalg.inv(a + 3 * jnp.eye(3)) ** 2))),
        [(3, 3)],
    ),
    "solutions": (jax.vmap(lambda a, b: jnp.linalg.solve(a + 3 * jnp.eye(3), b)), [(3, 3), (3,)]),
    "Cholesky factors": (jax.vmap(likelihood), [(3, 3), (3,)]),
    "gradient of Cholesky factors": (jax.vmap(jax.grad(likelihood)), [(3, 3), (3,)]),
    "Kalman filters": (jax.vmap(estimated), [(4,), (4, 4), (2,)]),
    "diagonals": (jax.vmap(lambda a: jnp.diag(a)[:, None] * a.at[::2, 1].add(a[0, 0])), [(3, 3)]),
    "partial sums and products": (
        jax.vmap(lambda x: jnp.cumsum(x) * jnp.cumprod(x[::-1]) + lax.cummax(x, reverse=True)),
        [(5,)],
    ),
    "gradient of a product": (jax.vmap(jax.grad(lambda x: jnp.prod(1.0 + jnp.sin(x)))), [(4,)]),
    "Hessian of a product": (jax.vmap(jax.hessian(lambda x: jnp.prod(x) + x[0] ** 3)), [(4,)]),
    "element by number": (
        jax.vmap(lambda x: x.at[jnp.abs(x[1]).astype(int) % 4].multiply(x[0]) * jnp.sum(x)),
        [(4,)],
    ),
    "quaternions": (
        jax.vmap(lambda q, v: q[0] * v + jnp.cross(q[1:], v) / jnp.sqrt(q @ q)),
        [(4,), (3,)],
    ),
}


@pytest.mark.own_code
@pytest.mark.parametrize("name", ONE_LOOP)
@pytest.mark.parametrize("lanes", [17, 1000])
def test_one_loop_and_no_arrays_in_between(name, lanes):
    f, shapes = ONE_LOOP[name]
    args = [normal(lanes, *s, seed=k) for k, s in enumerate(shapes)]
    assert kernels(f, *args) == (1, 0)
    agrees(f, *args)


def test_lanes_that_come_last():
    def f(x):
        return jnp.stack([x[0] * x[1], x[1] * x[2], jnp.sum(x, axis=0)]) / jnp.max(x, axis=0)

    assert kernels(f, normal(3, 500)) == (1, 0)
    agrees(f, normal(3, 500))


@pytest.mark.own_code
def test_a_grid_of_small_vectors():
    turn = jnp.array([[0.4, 0.3, 0.2], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]])

    def pixel(c):
        y = jnp.cbrt(turn @ c)
        return jnp.stack([y[1], y[0] - y[1], y[1] - y[2]])

    f = jax.vmap(jax.vmap(pixel))
    assert kernels(f, normal(20, 30, 3))[0] == 1
    agrees(f, normal(20, 30, 3))


def test_neighbours_on_a_grid_of_short_columns_are_computed_by_columns():
    def f(u):
        slope = jnp.tanh(u[1:, 1:] - u[:-1, :-1])
        steps = slope[:, :, 1:] * slope[:, :, :-1]
        return jnp.zeros_like(u).at[1:, 1:, 1:].set(steps) + u

    u = normal(LANES, LANES, 11)
    agrees(f, u)
    text = jax.jit(f).lower(u).as_text("kernel")
    assert text.count(" = tanh(") == 1  # not written out for each level


def test_totals_of_lanes_are_made_in_their_loop():
    def f(x):
        y = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        return jnp.sum(y, axis=0), jnp.sum(y**2), jnp.sum(x * y)

    assert kernels(f, normal(100, 3))[0] == 1
    agrees(f, normal(100, 3))


def test_gathered_problems_are_read_where_they_are():
    def f(table, k):
        return jax.vmap(lambda row: row[:3] / jnp.sum(row[3:] ** 2))(table[k])

    table, k = normal(20, 7), np.arange(300) % 20
    assert kernels(f, table, k) == (1, 0)
    agrees(f, table, k)


@pytest.mark.own_code
def test_the_vectoriser_knows_the_strides():
    """A stride that is a parameter would keep a loop from becoming vectors."""
    text = jax.jit(jax.vmap(jax.jacrev(lambda x: jnp.cumsum(x) * x[0]))).lower(normal(100, 5))
    stores = [line for line in text.as_text("llvm").splitlines() if "mul i64 " in line]
    assert stores
    assert any(line.endswith(", 25") for line in stores)


@pytest.mark.own_code
@pytest.mark.parametrize("dtype", ["float64", "complex128", "int32"])
def test_known_zeros_in_rows_are_no_calls(dtype):
    """LLVM clears neighbours by memset, and makes no vectors of a loop with calls."""

    def generator(x):
        zero = jnp.zeros((), x.dtype)
        return jnp.stack([x[0] * x[1], zero, zero, zero, zero, jnp.sum(x)])

    x = (3 * normal(100, 3)).astype(dtype)
    agrees(jax.vmap(generator), x)
    text = jax.jit(jax.vmap(generator)).lower(x).as_text("llvm")
    stores = [line.split()[2] for line in text.splitlines() if line.startswith("  store ")]
    assert stores
    assert not {"0,", "0x0000000000000000,"} & set(stores)


@pytest.mark.own_code
def test_large_matrices_of_lanes_are_gone_through_by_rows():
    f = jax.grad(lambda x, a: jnp.sum(jax.vmap(lambda x, a: x @ (a @ x))(x, a) ** 2))
    args = normal(LANES, 12), normal(LANES, 12, 12)
    assert kernels(f, *args)[0] == 1
    agrees(f, *args, rtol=1e-10)


# --- and what does not -------------------------------------------------------------------------


def test_elementwise_values_stay_one_loop_over_memory():
    text = jax.jit(lambda x: jnp.sin(x) * x + 1.0).lower(normal(200, 3)).as_text("kernel")
    assert "< 600:" in text


def test_more_totals_than_registers_are_no_lanes():
    def f(x, centres):
        d = jnp.sum((x[:, None] - centres[None]) ** 2, axis=-1)
        return jnp.sum((jnp.min(d, axis=1)[:, None] == d)[..., None] * x[:, None], axis=0)

    agrees(f, normal(100, 4), normal(16, 4))


def test_few_rows_of_joined_parts_are_no_lanes():
    """The cell of an LSTM for 16 sequences: each element of a lane would ask which gate it is of."""

    def f(h, ct):
        gates = jnp.split(h, 4, axis=-1)
        parts = [jnp.tanh(g) * ct for g in gates]
        joined = jnp.concatenate(parts, axis=-1)
        return joined, jnp.sum(joined, axis=0)

    h, ct = normal(16, 128), normal(16, 32)
    agrees(f, h, ct)
    assert jax.jit(f).lower(h, ct).as_text("kernel").count("tanh(") == 4


def test_windows_over_a_grid_are_no_lanes():
    def f(x, k):
        layout = ("NHWC", "HWIO", "NHWC")
        y = jnp.tanh(lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=layout))
        return jnp.sum(y**2), jnp.max(y, axis=-1)

    x, k = normal(20, 18, 18, 1), normal(3, 3, 1, 8)
    agrees(f, x, k)
    assert jax.jit(f).lower(x, k).as_text("kernel").count("tanh(") <= 2


# --- that it is right --------------------------------------------------------------------------


def carried(x):
    def step(s, _):
        d = jnp.stack([s[1] - s[0], s[0] * s[2], jnp.sum(s * s)])
        return s + 0.01 * d, s[0]

    return lax.scan(step, x, None, length=7)


CASES = {
    "scan": (jax.vmap(carried), [(3,)]),
    "scan of all lanes": (
        lambda x: lax.fori_loop(0, 5, lambda k, s: s / jnp.sum(s**2, axis=1, keepdims=True), x),
        [(3,)],
    ),
    "columns set": (lambda x: x.at[:, 1].set(jnp.sum(x, axis=1)).at[:, ::2].add(2.0), [(5,)]),
    "own elements, updated": (lambda x, y: (x * y[:, :1]).at[:, 1:3].multiply(y), [(4,), (2,)]),
    "elements and rows moved in place": (
        lambda x: lax.fori_loop(
            0,
            4,
            lambda k, s: s.at[:, 0].set(s[::-1, 1]).at[:, 1].add(s[:, 0]).at[3].set(s[k, 2]),
            x / jnp.sum(x, axis=1, keepdims=True),
        ),
        [(3,)],
    ),
    "elements moved": (
        lambda x, y: lax.dynamic_update_slice(
            lax.optimization_barrier(x.T / y[:, 0]), 2.0 * (x.T / y[:, 0])[:2], (1, 0)
        ),
        [(3,), (1,)],
    ),
    "rows of others": (lambda x: x / jnp.sum(x[::-1], axis=1, keepdims=True), [(3,)]),
    "neighbours": (lambda x: jnp.cross(x, jnp.roll(x, 1, axis=0)) * jnp.sum(x), [(3,)]),
    "differences": (lambda x: jnp.linalg.norm(x[1:] - x[:-1], axis=1), [(3,)]),
    "element by number": (
        jax.vmap(lambda x: x[jnp.argmax(x)] + jnp.take(x * 2, jnp.argmin(x))),
        [(4,)],
    ),
    "sorted": (jax.vmap(lambda x: jnp.sort(x * jnp.sum(x)) / jnp.max(x)), [(4,)]),
    "cumulative": (jax.vmap(lambda x: jnp.cumsum(x * x[0]) / jnp.prod(x)), [(4,)]),
    "reshaped": (
        lambda x: jnp.transpose(
            (x / jnp.sum(x, axis=1, keepdims=True)).reshape(-1, 2, 3), (2, 0, 1)
        ),
        [(6,)],
    ),
    "lanes made smaller": (lambda x: jnp.sum((x / x[:, :1]).reshape(-1, 2, 3), axis=1), [(3,)]),
    "largest lane": (
        lambda x: (jnp.argmax(jnp.sum(x**2, axis=1)), jnp.max(x / x[:, :1], axis=0)),
        [(3,)],
    ),
    "two sums": (
        lambda x: x * jnp.sum(x**2, axis=1, keepdims=True) / jnp.sum(jnp.sum(x**2, axis=1)),
        [(3,)],
    ),
    "single": (
        lambda x: jnp.sum(jnp.float32(x) ** 2, axis=1) * jnp.float32(x)[:, 0],
        [(3,)],
    ),
    "complex": (lambda x: jnp.abs((x + 1j * x[:, :1]) @ jnp.ones((3, 3))), [(3,)]),
    "integers": (lambda x: jnp.sum((10 * x).astype(int) // 3, axis=1) % 7, [(3,)]),
    "choices": (jax.vmap(lambda x: jnp.where(x > jnp.mean(x), x, jnp.any(x > 1.0))), [(3,)]),
    "branches": (
        jax.vmap(lambda x: lax.cond(x[0] > 0, lambda y: y * y[1], lambda y: y / y[2], x)),
        [(3,)],
    ),
    "permutations": (
        jax.vmap(lambda a: jax.scipy.linalg.lu(a)[0] @ a[:, :2] + jax.scipy.linalg.lu(a)[1][:, :2]),
        [(3, 3)],
    ),
    "transposed systems": (
        jax.vmap(
            lambda a, b: (
                jax.scipy.linalg.solve_triangular(a + 3 * jnp.eye(3), b, trans=1)
                + jax.scipy.linalg.solve_triangular(a, b[::-1], lower=True, unit_diagonal=True)
                + jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b, trans=1)
            )
        ),
        [(3, 3), (3,)],
    ),
    "many right-hand sides": (
        lambda b: jax.scipy.linalg.solve_triangular(jnp.tri(3) + 1, b.T / jnp.sum(b, axis=1)),
        [(3,)],
    ),
    "many columns": (
        lambda b: jnp.linalg.solve(jnp.tri(3) + jnp.eye(3)[::-1], b.T / jnp.sum(b, axis=1)).T,
        [(3,)],
    ),
    "complex systems": (
        jax.vmap(lambda a, b: jnp.abs(jnp.linalg.solve(a + 3j * jnp.eye(3), b * (1 + 2j)))),
        [(3, 3), (3,)],
    ),
    "systems of five": (
        jax.vmap(lambda a, b: jnp.linalg.solve(a + 5 * jnp.eye(5), b) * jnp.sum(b)),
        [(5, 5), (5,)],
    ),
    "small systems": (
        jax.vmap(lambda a, b: jnp.linalg.solve(a + 3 * jnp.eye(3), b) * jnp.linalg.det(a)),
        [(3, 3), (3,)],
    ),
    "Cholesky": (
        jax.vmap(lambda a: jnp.sum(jnp.linalg.cholesky(a @ a.T + jnp.eye(3)), axis=0)),
        [(3, 3)],
    ),
    "one of one": (lambda x: jnp.sum(x, axis=1) * x[:, 0], [(1,)]),
}


@pytest.mark.parametrize("name", CASES)
def test_lanes_agree_with_equations(name):
    f, shapes = CASES[name]
    agrees(
        f,
        *[normal(LANES, *s, seed=3 + k) for k, s in enumerate(shapes)],
        rtol=2e-5 if name == "single" else 1e-11,
    )


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("integers", "largest lane")])
def test_gradients_of_lanes(name):
    f, shapes = CASES[name]

    def cost(*args):
        leaves = jax.tree_util.tree_leaves(f(*args))
        return sum(jnp.sum(jnp.sin(v)) for v in leaves)

    args = [normal(LANES, *s, seed=3 + k) for k, s in enumerate(shapes)]
    numbers = tuple(range(len(args)))
    agrees(jax.grad(cost, argnums=numbers), *args, rtol=2e-5 if name == "single" else 1e-9)


def test_donated_lanes_are_overwritten():
    def f(x):
        return x / jnp.sum(x**2, axis=1, keepdims=True)

    x = normal(LANES, 3)
    expected = x / np.sum(x**2, axis=1, keepdims=True)
    found = jax.jit(f, donate_argnums=0)(jnp.array(x))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


# --- random programs ---------------------------------------------------------------------------

SHAPES = [(LANES,), (LANES, 3), (LANES, 1), (LANES, 2, 3), (LANES, 3, 3), (3, LANES), (LANES, 20)]


def random_program(seed):
    """A function of an array of (LANES, 3): a chain of operations that mix shapes."""
    choose = np.random.default_rng(seed)

    def step(pool):
        x = pool[choose.integers(len(pool))]
        y = pool[choose.integers(len(pool))]
        short = [k for k, n in enumerate(x.shape) if n < 17]
        lane = next(k for k, n in enumerate(x.shape) if n == LANES)
        axis = int(choose.choice(short)) if short else lane
        match choose.integers(12):
            case 0:
                return jnp.sin(x) + 0.5 * x
            case 1 if short:
                return jnp.sum(x, axis=axis)
            case 2 if short:
                return jnp.max(x, axis=axis, keepdims=True) - x
            case 3 if x.ndim == 1:
                return jnp.stack([x, x * x, jnp.cos(x)], axis=1)
            case 4 if x.shape == y.shape:
                return x * y
            case 5 if short:
                return lax.index_in_dim(x, x.shape[axis] - 1, axis, keepdims=False)
            case 6 if x.shape == (LANES, 3) and y.shape == (LANES, 3, 3):
                return jnp.einsum("ni,nij->nj", x, y)
            case 7 if x.ndim == 2:
                return x.T
            case 8 if x.shape == (LANES, 3):
                return x.at[:, int(choose.integers(3))].add(jnp.tanh(x[:, 0]))
            case 9 if x.shape == (LANES, 3) == y.shape:
                return x[:, :, None] * y[:, None, :]
            case 10:
                return jnp.roll(x, 1, axis=lane) - x
            case 11:
                return x / (1.0 + jnp.sum(x**2))
        return jnp.tanh(x)

    def f(x):
        nonlocal choose
        choose = np.random.default_rng(seed)
        pool = [x, x[:, 0]]
        for _ in range(14):
            new = step(pool)
            if LANES in new.shape:
                pool.append(new)
        return pool[-3:], jnp.sum(pool[-1])

    return f


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_of_lanes(seed):
    x = normal(LANES, 3, seed=zlib.crc32(str(seed).encode()))
    agrees(random_program(seed), x, rtol=1e-10)


@pytest.mark.parametrize("shape", [(17, 0, 3), (40, 3, 0)])
def test_lanes_without_elements(shape):
    """What sorts, ranks or selects wants its operands in memory, also those of no elements."""
    x = jnp.ones(shape)
    for f in (
        lambda x: jnp.sort(x * 2.0, axis=1),
        lambda x: jnp.argsort(x * 2.0, axis=0),
        lambda x: lax.top_k(x * 2.0, 0),
        lambda x: jnp.cumsum(x * 2.0, axis=1) + jnp.sum(x, axis=-1, keepdims=True),
    ):
        found, expected = map(jax.tree_util.tree_leaves, (jax.jit(f)(x), f(x)))
        for a, b in zip(found, expected, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
