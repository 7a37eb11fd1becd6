"""What programs of several processes do together: there is one, and it waits for nobody."""

from typing import Any

import numpy as np

from fnx.core.errors import InvalidValue
from fnx.pytree.operations import tree_map

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here: at once, since there is one.

    >>> fnx.experimental.multihost_utils.sync_global_devices("after loading")
    """
    del name


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The arrays of the source, the first process, as NumPy's; InvalidValue if there is no source.

    >>> fnx.experimental.multihost_utils.broadcast_one_to_all({"a": 1})
    {'a': array(1)}
    """
    if is_source is False:
        raise InvalidValue(
            "broadcast_one_to_all got is_source=False in the only process; expected one that is the source"
        )
    return tree_map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes, along a new first axis of length 1, or along the first if `tiled`.

    >>> fnx.experimental.multihost_utils.process_allgather(jnp.ones(2))
    array([[1., 1.]])
    """

    def gathered(x: Any) -> np.ndarray:
        x = np.asarray(x)
        return x if tiled and x.ndim else x[None]

    return tree_map(gathered, in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """AssertionError unless all processes have these values, which one always has.

    >>> fnx.experimental.multihost_utils.assert_equal(3)
    """
    del in_tree, fail_message


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save what they have: nobody announces that one will be ended.

    >>> fnx.experimental.multihost_utils.reached_preemption_sync_point(3)
    False
    """
    del step_id
    return False
