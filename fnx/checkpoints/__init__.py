"""Checkpoints: trees of arrays kept in a folder, to go on from after a run ended.

In a run of several processes each writes the parts that lie on its devices; a later run may have another
number of processes. A checkpoint is there as a whole or not at all, whenever the run is killed.

>>> import tempfile
>>> folder = tempfile.mkdtemp()
>>> state = {"w": jnp.ones(3), "step": 4}
>>> path = fnx.checkpoints.save(folder, 4, state)
>>> fnx.checkpoints.latest(folder)
4
>>> fnx.checkpoints.restore(folder)
{'w': Array([1., 1., 1.], dtype=float64), 'step': 4}
"""

from fnx.checkpoints.index import CorruptCheckpoint
from fnx.checkpoints.reading import restore
from fnx.checkpoints.steps import latest, steps
from fnx.checkpoints.writing import save

__all__ = ["CorruptCheckpoint", "latest", "restore", "save", "steps"]
