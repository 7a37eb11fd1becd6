"""Derivatives of models of statistics, vision, language and mechanics, beside the time of the model."""

from __future__ import annotations

import math

import numpy as np
from program import Program

from programs.scan import RING, gradient, ring, ring_start

GROUP = "derivatives"
COMPILE = {"compile": {"jax": None}, "warm": {"jax": None}}


# Gaussian mixture -------------------------------------------------------------------------------


def mixture(jax, jnp, lax, size):
    """Log-likelihood of a mixture whose inverse covariances are given by triangular factors."""
    _, d, k = size
    rows, columns = np.tril_indices(d, -1)

    def likelihood(weights, means, log_diagonal, lower, x):
        factor = jnp.zeros((k, d, d)).at[:, rows, columns].set(lower)
        factor = factor + jnp.exp(log_diagonal)[:, :, None] * jnp.eye(d)
        centred = x[:, None, :] - means[None, :, :]
        white = jnp.einsum("kij,nkj->nki", factor, centred)
        score = weights + jnp.sum(log_diagonal, axis=1) - 0.5 * jnp.sum(white**2, axis=-1)
        top = jnp.max(score, axis=1, keepdims=True)
        each = jnp.log(jnp.sum(jnp.exp(score - top), axis=1)) + top[:, 0]
        norm = jnp.log(jnp.sum(jnp.exp(weights - jnp.max(weights)))) + jnp.max(weights)
        prior = 0.5 * (jnp.sum(jnp.exp(2.0 * log_diagonal)) + jnp.sum(lower**2))
        return jnp.sum(each) - x.shape[0] * norm - prior + jnp.sum(log_diagonal)

    return likelihood


def mixture_inputs(size):
    """Parameters and points."""
    n, d, k = size
    rng = np.random.default_rng(31)
    lower = 0.1 * rng.normal(size=(k, d * (d - 1) // 2))
    shapes = ((k,), (k, d), (k, d))
    return *(0.3 * rng.normal(size=s) for s in shapes), lower, rng.normal(size=(n, d))


# bundle adjustment ------------------------------------------------------------------------------


def reprojection(jnp):
    """Residuals of one observation: camera of 11 numbers, point of 3, weight."""

    def residual(camera, point, weight, seen):
        rotation, centre, optics = camera[:3], camera[3:6], camera[6:]
        focal, principal, k1, k2 = optics[0], optics[1:3], optics[3], optics[4]
        angle = jnp.sqrt(jnp.sum(rotation**2) + 1e-16)
        axis, moved = rotation / angle, point - centre
        turned = (
            moved * jnp.cos(angle)
            + jnp.cross(axis, moved) * jnp.sin(angle)
            + axis * jnp.dot(axis, moved) * (1.0 - jnp.cos(angle))
        )
        flat = turned[:2] / turned[2]
        square = jnp.sum(flat**2)
        pixel = flat * (1.0 + k1 * square + k2 * square**2) * focal + principal
        return jnp.concatenate([weight * (pixel - seen), jnp.reshape(1.0 - weight**2, (1,))])

    return residual


def bundle(jax, jnp, lax, size):
    """All residuals."""
    residual = jax.vmap(reprojection(jnp))

    def apply(cameras, points, weights, seen, camera_of, point_of):
        return residual(cameras[camera_of], points[point_of], weights, seen)

    return apply


def bundle_jacobian(jax, jnp, lax, size):
    """The blocks of the Jacobian, observation by observation."""
    blocks = jax.vmap(jax.jacrev(reprojection(jnp), argnums=(0, 1, 2)))

    def apply(cameras, points, weights, seen, camera_of, point_of):
        return blocks(cameras[camera_of], points[point_of], weights, seen)

    return apply


def bundle_inputs(size):
    """Cameras before points, who sees what."""
    cameras, points, observations = size
    rng = np.random.default_rng(32)
    camera = 0.1 * rng.normal(size=(cameras, 11))
    camera[:, 6] += 1.0
    point = rng.normal(size=(points, 3)) + np.array([0.0, 0.0, 6.0])
    return (
        camera,
        point,
        rng.uniform(0.5, 1.0, observations),
        rng.normal(size=(observations, 2)),
        rng.integers(0, cameras, observations).astype(np.int32),
        rng.integers(0, points, observations).astype(np.int32),
    )


# LSTM -------------------------------------------------------------------------------------------


def lstm(jax, jnp, lax, size):
    """Cross entropy of the next letter under two stacked layers."""
    _, hidden, _ = size

    def cell(parameters, state, x):
        (h, c), (w, u, b) = state, parameters
        gates = x @ w + h @ u + b
        i, f, o, g = (gates[k * hidden : (k + 1) * hidden] for k in range(4))
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def loss(layers, output, text):
        def read(states, letters):
            x, target = letters
            new = []
            for parameters, state in zip(layers, states):
                state = cell(parameters, state, x)
                new.append(state)
                x = state[0]
            score = x @ output[0] + output[1]
            top = jnp.max(score)
            norm = jnp.log(jnp.sum(jnp.exp(score - top))) + top
            return tuple(new), norm - jnp.sum(score * target)

        zero = jnp.zeros(hidden)
        start = tuple((zero, zero) for _ in layers)
        return jnp.mean(lax.scan(read, start, (text[:-1], text[1:]))[1])

    return loss


def lstm_inputs(size):
    """Parameters, and a random text in one-hot letters."""
    length, hidden, letters = size
    rng = np.random.default_rng(33)

    def layer(width):
        shapes = ((width, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,))
        return tuple(rng.normal(size=s) / math.sqrt(hidden) for s in shapes)

    output = (rng.normal(size=(hidden, letters)) / math.sqrt(hidden), np.zeros(letters))
    text = np.eye(letters)[rng.integers(0, letters, length + 1)]
    return [layer(letters), layer(hidden)], output, text


# sums, clusters, matrices -----------------------------------------------------------------------


def log_sum_exp(jax, jnp, lax, size):
    """Shifted by the largest."""

    def apply(x):
        top = jnp.max(x)
        return jnp.log(jnp.sum(jnp.exp(x - top))) + top

    return apply


def vector(size):
    """A vector."""
    return (np.random.default_rng(34).normal(size=size),)


def clustering(jax, jnp, lax, size):
    """Sum of squared distances to the nearest centre."""

    def cost(centres, points):
        distance = jnp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
        return jnp.sum(jnp.min(distance, axis=1) ** 1.5)

    return cost


def clustering_hvp(jax, jnp, lax, size):
    """The Hessian in the centres times a direction, forward over reverse, after the gradient."""
    slope = jax.grad(clustering(jax, jnp, lax, size))

    def apply(centres, points, direction):
        return jax.jvp(lambda c: slope(c, points), (centres,), (direction,))

    return apply


def clustering_itself(jax, jnp, lax, size):
    """The cost, of the arguments that the Hessian's product has."""
    cost = clustering(jax, jnp, lax, size)
    return lambda centres, points, direction: cost(centres, points)


def clusters(size):
    """Centres, points."""
    n, k, d = size
    rng = np.random.default_rng(35)
    return rng.normal(size=(k, d)), rng.normal(size=(n, d))


def clusters_and_direction(size):
    """Centres, points, a direction."""
    centres, points = clusters(size)
    return centres, points, np.random.default_rng(36).normal(size=centres.shape)


def least_squares(jax, jnp, lax, size):
    """The residual of the best fit, by the normal equations."""

    def apply(a, b):
        x = jnp.linalg.solve(a.T @ a + 1e-3 * jnp.eye(a.shape[1]), a.T @ b)
        return jnp.sum((a @ x - b) ** 2) + jnp.sum(jnp.sin(x))

    return apply


def overdetermined(size):
    """A tall matrix and a right-hand side."""
    rng = np.random.default_rng(37)
    return rng.normal(size=size), rng.normal(size=size[0])


def residual_cost(jax, jnp, lax, size):
    """Sum of squares of a linear residual."""
    return lambda x, a, b: jnp.sum((a @ x - b) ** 2)


def with_guess(size):
    """The same with a guess before it."""
    return np.random.default_rng(38).normal(size=size[1]), *overdetermined(size)


def determinant(jax, jnp, lax, size):
    """Of a matrix."""
    return jnp.linalg.det


def matrix(n):
    """A matrix with a determinant of moderate size."""
    return (np.random.default_rng(39).normal(size=(n, n)) / math.sqrt(n) + np.eye(n),)


# mechanics --------------------------------------------------------------------------------------


def reaction(jax, jnp, lax, size):
    """A reaction with diffusion on a line by RK4; how far it ends from a target."""
    _, steps = size

    def velocity(u, rate):
        around = jnp.concatenate([u[:1], u[:-1]]) + jnp.concatenate([u[1:], u[-1:]])
        return 2.0 * (around - 2.0 * u) + rate * u * (1.0 - u) * (u - 0.3)

    def loss(u, rate, target):
        def step(u, _):
            h = 0.05
            k1 = velocity(u, rate)
            k2 = velocity(u + 0.5 * h * k1, rate)
            k3 = velocity(u + 0.5 * h * k2, rate)
            k4 = velocity(u + h * k3, rate)
            return u + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

        last, _ = lax.scan(step, u, None, length=steps)
        return jnp.sum((last - target) ** 2)

    return loss


def reaction_inputs(size):
    """State, rates, target."""
    rng = np.random.default_rng(40)
    return tuple(rng.uniform(low, high, size[0]) for low, high in ((0, 1), (0.5, 1.5), (0, 1)))


def landing(jax, jnp, lax, steps):
    """Where a charged particle lands that falls between charges of strength `w`."""
    charges = np.array([[10.0, 10.0 - 4.0], [10.0, 0.0]])

    def potential(x, w):
        far = jnp.sqrt(jnp.sum((x[None, :] - jnp.stack([charges[0], charges[1] - w])) ** 2, axis=1))
        return jnp.sum(1.0 / far)

    def apply(w):
        def step(state, _):
            x, v = state
            v = v - 0.1 * jax.grad(potential)(x, w)
            return (x + 0.1 * v, v), None

        start = (jnp.array([0.0, 8.0]), jnp.array([0.75, 0.0]))
        (x, v), _ = lax.scan(step, start, None, length=steps)
        return (x[0] - 5.0) ** 2 + 0.1 * jnp.sum(v**2)

    return apply


def particle(jax, jnp, lax, steps):
    """Newton's method on the particle's landing: derivatives of a simulation that contains a gradient."""
    slope = jax.grad(landing(jax, jnp, lax, steps))

    def apply(w):
        def newton(_, w):
            return w - 0.1 * slope(w) / (jnp.abs(jax.grad(slope)(w)) + 1.0)

        return lax.fori_loop(0, 4, newton, w)

    return apply


def highest(jax, jnp, lax, steps):
    """The maximum of a function of x and y over y, by gradient steps."""

    def f(x, y):
        return jnp.sum(x**2) - jnp.sum(y**2) + 0.5 * jnp.sum(jnp.sin(x) * y)

    def best(x):
        climb = lambda y, _: (y + 0.1 * jax.grad(f, 1)(x, y), None)
        y, _ = lax.scan(climb, jnp.ones(2), None, length=steps)
        return f(x, y)

    return best


def saddle(jax, jnp, lax, steps):
    """The least of a function that is itself a maximum, both by gradient steps."""
    best = highest(jax, jnp, lax, steps)

    def apply(x):
        return lax.fori_loop(0, steps, lambda _, x: x - 0.1 * jax.grad(best)(x), x)

    return apply


def scalar(value):
    """One number."""
    return lambda _: (np.asarray(value),)


def plane(_):
    """A point of the plane."""
    return (np.array([1.0, -0.7]),)


def derivative(
    name, objective, inputs, size, quick, argnums=0, make=None, asked=4.0, jax=0.7, **more
):
    """A program that is a derivative, with its objective."""
    targets = {"run": {"jax": jax}, **COMPILE}
    if asked is not None:
        targets["objective"] = {"own": asked}
    return Program(
        name,
        GROUP,
        make or gradient(objective, argnums),
        inputs,
        size=size,
        quick=quick,
        targets=targets,
        objective=objective if asked is not None else None,
        **more,
    )


PROGRAMS = [
    derivative(
        "Gaussian mixture gradient",
        mixture,
        mixture_inputs,
        (1000, 10, 20),
        (30, 3, 2),
        (0, 1, 2, 3),
    ),
    derivative(
        "bundle adjustment Jacobian",
        bundle,
        bundle_inputs,
        (20, 500, 5000),
        (2, 5, 20),
        make=bundle_jacobian,
    ),
    derivative("LSTM gradient", lstm, lstm_inputs, (100, 32, 14), (5, 4, 3), (0, 1)),
    derivative("log-sum-exp gradient", log_sum_exp, vector, 100_000, 100),
    derivative("k-means gradient", clustering, clusters, (5000, 16, 4), (40, 3, 2)),
    derivative(
        "k-means Hessian-vector",
        clustering_itself,
        clusters_and_direction,
        (5000, 16, 4),
        (40, 3, 2),
        make=clustering_hvp,
    ),
    derivative("ODE gradient", reaction, reaction_inputs, (100, 500), (10, 20), (0, 1)),
    derivative("particle gradient", landing, scalar(0.0), 60, 10),
    derivative("particle, Newton", None, scalar(0.0), 60, 10, make=particle, asked=None),
    derivative("saddle gradient", highest, plane, 100, 10),
    derivative(
        "saddle, nested descent",
        None,
        plane,
        100,
        10,
        make=saddle,
        asked=None,
    ),
    derivative("least squares cost gradient", residual_cost, with_guess, (1000, 200), (20, 4)),
    derivative(
        "least squares fit gradient", least_squares, overdetermined, (400, 50), (20, 4), (0, 1)
    ),
    derivative("determinant gradient", determinant, matrix, 100, 8),
    derivative(
        "ring of 60 gradient, 10^5 steps",
        ring(60),
        ring_start(60),
        100_000,
        RING["quick"],
        jax=1 / 30,
        asked=None,
    ),
]
