"""Collectives in every combination of names, groups, tiles and axes, under transformations, against what
JAX 0.10.2 makes of them on four devices (tests/support/collective_cases.py).
"""

import json
from pathlib import Path

import numpy as np
import pytest
from collective_cases import cases, summary

import fnx
from fnx.core import config

KEPT = json.loads((Path(__file__).parents[1] / "data" / "collectives_of_jax.json").read_text())
COLLECTIVES = sorted({name.rpartition(", ")[0] for name in KEPT})
# JAX permutes members in the order of the mesh's axes; here, as axis_index numbers them, by the names.
OTHERWISE = ("ppermute over ('y', 'x')", "ppermute of some over ('y', 'x')")


@pytest.mark.slow
@pytest.mark.parametrize("collective", [c for c in COLLECTIVES if c not in OTHERWISE])
def test_like_jax(collective):
    with config.num_devices(4):
        mine = [(n, run) for n, run in cases(fnx) if n.rpartition(", ")[0] == collective]
        assert len(mine) == 5
        for name, run in mine:
            expected = KEPT[name]
            found = summary(run())  # what JAX refuses has a meaning, too
            if isinstance(expected, str):
                assert np.isfinite(found[1:]).all(), name
                continue
            assert found[0] == expected[0], name
            np.testing.assert_allclose(found[1:], expected[1:], 1e-9, 1e-9, err_msg=name)


def test_what_jax_refuses_is_known():
    refused = {name for name, kept in KEPT.items() if isinstance(kept, str)}
    kinds = {name.split()[0] for name in refused}
    assert kinds == {"pmax", "pmin", "psum_scatter", "all_to_all"}
    assert len(refused) == 25
