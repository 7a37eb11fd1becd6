"""Rotations against SciPy's, and their derivatives."""

import itertools

import numpy as np
import pytest
from scipy.spatial import transform as reference

import fnx
import fnx.numpy as jnp
from fnx.scipy.spatial.transform import Rotation, Slerp

QUATS = np.random.default_rng(3).normal(size=(7, 4))
SHAPES = [(4,), (5, 4)]
SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] != s[2]]


def pair(shape=(5, 4), first=0):
    quats = QUATS[first : first + 5] if len(shape) == 2 else QUATS[first]
    return Rotation.from_quat(quats), reference.Rotation.from_quat(quats)


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["as_quat", "as_matrix", "as_rotvec", "as_mrp", "magnitude"])
def test_forms(name, shape):
    mine, theirs = pair(shape)
    close(getattr(mine, name)(), getattr(theirs, name)())
    close(fnx.jit(lambda r: getattr(r, name)())(mine), getattr(theirs, name)())


@pytest.mark.parametrize("shape", SHAPES)
def test_back_from_other_forms(shape):
    mine, theirs = pair(shape)
    for made in (
        Rotation.from_matrix(theirs.as_matrix()),
        Rotation.from_rotvec(theirs.as_rotvec()),
        Rotation.from_rotvec(theirs.as_rotvec(degrees=True), degrees=True),
        Rotation.from_mrp(theirs.as_mrp()),
    ):
        close(made.as_quat(canonical=True), theirs.as_quat(canonical=True))
    close(mine.as_quat(scalar_first=True), theirs.as_quat(scalar_first=True))
    close(mine.as_rotvec(degrees=True), theirs.as_rotvec(degrees=True))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 9e-4, 1.1e-3, 3.0, np.pi])
def test_small_and_large_angles(angle):
    vector = angle * np.array([0.6, 0.0, 0.8])
    theirs = reference.Rotation.from_rotvec(vector)
    mine = Rotation.from_rotvec(vector)
    close(mine.as_quat(), theirs.as_quat(), 1e-15)
    close(mine.as_rotvec(), theirs.as_rotvec(), 1e-14)
    close(mine.as_matrix(), theirs.as_matrix(), 1e-15)
    close(Rotation.from_matrix(theirs.as_matrix()).magnitude(), angle, 1e-7)


def test_derivatives_at_the_identity():
    turn = lambda v: Rotation.from_rotvec(v).apply(jnp.array([1.0, 2.0, 3.0]))
    close(fnx.jacrev(turn)(jnp.zeros(3)), [[0, 3, -2], [-3, 0, 1], [2, -1, 0]])
    there_and_back = fnx.jacfwd(lambda v: Rotation.from_rotvec(v).as_rotvec())(jnp.zeros(3))
    close(there_and_back, np.eye(3))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("seq", SEQUENCES)
def test_euler_angles(seq, upper):
    seq = seq.upper() if upper else seq
    mine, theirs = pair()
    close(mine.as_euler(seq), theirs.as_euler(seq), 1e-11)
    angles = np.array([[20.0, -35.0, 70.0], [0.0, 10.0, 180.0]])
    made = Rotation.from_euler(seq, angles, degrees=True)
    close(made.as_matrix(), reference.Rotation.from_euler(seq, angles, degrees=True).as_matrix())
    for middle in (0.0, 90.0, 180.0):  # where the two others are not determined
        locked = Rotation.from_euler(seq, jnp.array([20.0, middle, 50.0]), degrees=True)
        again = Rotation.from_euler(seq, locked.as_euler(seq))
        close(again.as_matrix(), locked.as_matrix(), 1e-7)


def test_single_axes():
    many = Rotation.from_euler("z", [0.3, 0.4]).as_rotvec()
    close(many, [[0, 0, 0.3], [0, 0, 0.4]])
    for seq, angles in (("x", 0.3), ("Y", [0.3]), ("z", [[0.3], [0.4]]), ("xz", [0.3, 0.4])):
        theirs = reference.Rotation.from_euler(seq, angles).as_quat()
        close(Rotation.from_euler(seq, angles).as_quat(), theirs)
    for seq in ("xX", "", "xx", "a", "xyzx"):
        with pytest.raises(ValueError, match="axes"):
            Rotation.from_euler(seq, jnp.zeros(len(seq)))


@pytest.mark.parametrize("vectors", [np.arange(3.0), np.arange(15.0).reshape(5, 3)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inverse", [False, True])
def test_apply(shape, vectors, inverse):
    mine, theirs = pair(shape)
    close(mine.apply(vectors, inverse), theirs.apply(vectors, inverse))


def test_products_inverses_means_and_parts():
    (a, ra), (b, rb) = pair(), pair(first=2)
    close((a * b).as_matrix(), (ra * rb).as_matrix())
    close((a * b[0]).as_matrix(), (ra * rb[0]).as_matrix())
    close(a.inv().as_matrix(), ra.inv().as_matrix())
    close(a.mean().as_matrix(), ra.mean().as_matrix())
    weights = np.arange(1.0, 6.0)
    close(a.mean(weights).as_matrix(), ra.mean(weights).as_matrix())
    assert len(a) == len(Rotation.concatenate([a[:4], a[4]])) == 5
    assert a[0].single
    for wrong in (lambda: len(a[0]), lambda: a[0][0]):
        with pytest.raises(TypeError, match="single"):
            wrong()
    close(Rotation.identity(2).as_matrix(), np.stack([np.eye(3)] * 2))
    drawn = Rotation.random(fnx.random.key(0), 100)
    close(jnp.linalg.det(drawn.as_matrix()), np.ones(100))


def test_lanes_and_trees():
    mine, theirs = pair()
    turned = fnx.vmap(lambda r, v: r.apply(v), (0, None))(mine, jnp.arange(3.0))
    close(turned, theirs.apply(np.arange(3.0)))
    assert isinstance(fnx.tree.map(lambda x: x, mine), Rotation)


def test_interpolation():
    mine, theirs = pair()
    times, at = np.array([0.0, 1.0, 1.5, 3.0, 4.0]), np.array([0.0, 0.2, 1.0, 1.2, 3.9, 4.0])
    expected = reference.Slerp(times, theirs)(at).as_matrix()
    close(Slerp.init(times, mine)(at).as_matrix(), expected)
    close(fnx.jit(lambda s, t: s(t).as_matrix())(Slerp.init(times, mine), at), expected)
    assert Slerp.init(times, mine)(0.5).single
    few = Rotation(mine.quat.astype("float32"))
    assert (
        Slerp.init(times, few)(at).as_quat().dtype == "float32"
    )  # as the rotations, whatever times
    for wrong in (lambda: Slerp.init(times[:2], mine), lambda: Slerp.init(times[:1], mine[0])):
        with pytest.raises(ValueError, match="Slerp"):
            wrong()
