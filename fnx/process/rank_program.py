"""Programs of arrays whose parts lie in several processes: each runs its own devices' part of one program.

Collectives over an axis of the mesh go by the transport between the devices along it: threads of a process
meet first, then processes (lowering/transport/mpi.py).
"""

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue
from fnx.core.jaxpr import Jaxpr
from fnx.core.transport import Groups, in_force, use
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.primitives.member_team import Places, whole_shape
from fnx.process.devices import process_count, process_index, ranks
from fnx.process.spread import Spread, of_parts

_PATIENCE = 1e6  # seconds that threads of a rank wait for each other: other ranks may be slow


class RankProgram:
    """One device's program, run for each device of this process."""

    def __init__(self, found: Any, mesh: Any, backend: Any):
        self.members, self.places, self.mesh = found.members, found.places, mesh
        self.jaxpr: Jaxpr = self.members.jaxpr
        self.of, self.notes = found.jaxpr, found.notes
        self.seconds: dict[str, float] = {}
        axes = dict(self.members.axes)
        self.ins = [
            Places(cut, axes, whole_shape(a.shape, cut, axes))
            for a, cut in zip(self.jaxpr.in_avals, self.members.ins)
        ]
        self.outs = [
            whole_shape(a.shape, c, axes) for a, c in zip(self.jaxpr.out_avals, self.members.outs)
        ]
        devices = list(mesh.devices.flat)
        self.here = [k for k, d in enumerate(devices) if d.process_index == process_index()]
        self.devices, self.backend = devices, backend
        self.groups = {name: self._groups(name) for name in axes}
        self._check()

    def _check(self) -> None:
        """All devices of all processes, or those that are not in the mesh would be waited for."""
        if len(self.devices) != len(self.here) * process_count():
            raise InvalidValue(
                f"a program over {self.mesh}, whose {len(self.devices)} devices are in several processes; "
                f"process {process_index()} of {process_count()} has {len(self.here)} of them. Expected a "
                "mesh over equally many devices of all processes: fnx.make_mesh over fnx.devices()"
            )

    def _groups(self, name: Hashable) -> Groups:
        """The devices, by number among all, that are along an axis of the mesh together."""
        shape, names = self.mesh.devices.shape, list(self.mesh.axis_names)
        ids = np.asarray([self._number(d) for d in self.devices]).reshape(shape)
        rows = np.moveaxis(ids, names.index(name), -1).reshape(-1, shape[names.index(name)])
        return tuple([tuple(map(int, row)) for row in rows])

    def _number(self, device: Any) -> int:
        """The number of a device among those of the transport between all."""
        own = [d for d in self.devices if d.process_index == device.process_index]
        order = sorted(own, key=lambda d: d.id)
        return device.process_index * len(order) + order.index(device)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        given = [self._parts(x, place, k) for k, (x, place) in enumerate(zip(args, self.ins))]
        native: Callable = compiled(self.jaxpr, self.backend)

        def member(row: int, transport: Any) -> list[Array]:
            with use(self._transports(transport)):
                return native([ConcreteArray(g[row]) for g in given])

        count = len(self.here)
        if count == 1:
            made = [member(0, ranks[0])]
        else:
            from fnx.lowering.transport.local import Local
            from fnx.lowering.transport.mpi import Ranks

            order = sorted(range(count), key=lambda k: self.devices[self.here[k]].id)
            run = lambda k: member(order[k], Ranks(in_force("<local>", "a program"), ranks[0]))
            rows = Local(count, _PATIENCE).run("<local>", run, range(count))
            made = [rows[order.index(k)] for k in range(count)]
        return [self._joined(k, [outs[k] for outs in made]) for k in range(len(self.outs))]

    def _transports(self, everyone: Any) -> dict:
        found = {}
        for name, groups in self.groups.items():
            if len(groups[0]) == 1:
                continue
            same = groups == (tuple(range(prod(self.mesh.devices.shape))),)
            found[name] = everyone if same else everyone.split(groups)
        return found

    def _parts(self, x: Any, place: Places, k: int) -> list[np.ndarray]:
        """What this process's devices have of an operand, in the order of `here`."""
        value = x._value
        if type(value) is not Spread:
            return [
                np.ascontiguousarray(np.asarray(value)[place.indices[m]]).reshape(place.part)
                for m in self.here
            ]
        own = [np.asarray(value.parts[self.devices[m]], order="C") for m in self.here]
        if any(p.shape != place.part for p in own):
            raise InvalidValue(
                f"operand {k} of {self.members.of} lies in several processes, as {value.sharding} says, "
                "and is no argument: it was closed over. Pass it as an argument of the jitted function."
            )
        return own

    def _joined(self, k: int, parts: list) -> Array:
        """A result: whole in all processes, or of the parts that are here."""
        shape, place, aval = self.outs[k], self.places[k], self.jaxpr.out_avals[k]
        arrays = {self.devices[m]: p._value for m, p in zip(self.here, parts)}
        if not any(self.members.outs[k]):
            out = ConcreteArray(parts[0]._value, aval.weak_type)
            out.placed = place
            return out
        return of_parts(shape, aval.dtype, place, arrays, aval.weak_type)

    fast = None

    def report(self) -> str:
        """How it was partitioned, and what one device's program is made of."""
        head = f"  computed by {len(self.devices)} devices of {process_count()} processes"
        lines = [head, *[f"  {note}" for note in self.notes]]
        native: Any = compiled(self.jaxpr, self.backend)
        return "\n".join([*lines, native.report()])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(compiled(self.jaxpr, self.backend), name)


__all__ = ["RankProgram"]
