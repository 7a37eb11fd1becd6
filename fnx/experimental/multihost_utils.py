"""What programs of several processes do together (fnx.distributed); one alone waits for nobody."""

from typing import Any

import numpy as np

from fnx.core.errors import InvalidValue
from fnx.process.devices import ranks
from fnx.process.spread import gathered as all_of
from fnx.process.spread import is_spread
from fnx.pytree.operations import tree_leaves, tree_map

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here.

    >>> fnx.experimental.multihost_utils.sync_global_devices("after loading")
    """
    del name
    for transport in ranks:
        transport.barrier()


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the source, by default the first process, as NumPy's; InvalidValue without a source.

    >>> fnx.experimental.multihost_utils.broadcast_one_to_all({"a": 1})
    {'a': array(1)}
    """
    if ranks:
        given = ranks[0].rank == 0 if is_source is None else is_source
        sources = np.flatnonzero(ranks[0].all_gather(np.asarray(given)))
        if len(sources) != 1:
            raise InvalidValue(
                f"broadcast_one_to_all has {len(sources)} sources, processes {sources}; expected one"
            )
        root = int(sources[0])
        return tree_map(lambda x: ranks[0].broadcast(np.asarray(x), root), in_tree)
    if is_source is False:
        raise InvalidValue(
            "broadcast_one_to_all got is_source=False in the only process; expected one that is the source"
        )
    return tree_map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, along a new first axis, or along the first if `tiled`.

    Of arrays whose parts lie in several processes, all of each.

    >>> fnx.experimental.multihost_utils.process_allgather(jnp.ones(2))
    array([[1., 1.]])
    """

    def gathered(x: Any) -> np.ndarray:
        if is_spread(x):
            return all_of(x)
        x = np.asarray(x)
        rows = ranks[0].all_gather(x) if ranks else x[None]
        return rows.reshape(-1, *x.shape[1:]) if tiled and x.ndim else rows

    return tree_map(gathered, in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError unless all processes have these values.

    >>> fnx.experimental.multihost_utils.assert_equal(3)
    """
    for x in tree_leaves(in_tree) if ranks else ():
        rows = ranks[0].all_gather(np.asarray(x))
        assert (rows == rows[0]).all(), f"{fail_message} processes have different values: {rows}"


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save what they have: nobody announces that one will be ended.

    >>> fnx.experimental.multihost_utils.reached_preemption_sync_point(3)
    False
    """
    del step_id
    return False
