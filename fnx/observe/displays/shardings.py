"""Meshes and shardings: which device has what, as a table and a picture of one or two axes."""

from typing import Any

from fnx.core import policy
from fnx.observe.displays import markup
from fnx.process.mesh import Mesh, spec_names
from fnx.process.shardings import NamedSharding, Sharding, SingleDeviceSharding

# Told apart side by side on either theme; devices beyond them begin anew.
_FILLS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#bab0ac")


def _box(x: float, y: float, width: float, height: float, fill: str, label: str) -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    middle = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle"'
    drawn = f'<rect {at} fill="{fill}" fill-opacity="0.45" stroke="{fill}"/>'
    return f"{drawn}<text {middle}>{markup.text(label)}</text>"


def _picture(parts: dict[tuple[int, ...], list[Any]], counts: tuple[int, ...], label: str) -> str:
    """A grid of parts, each with the numbers of the devices that have it."""
    rows, columns = counts if len(counts) == 2 else (1, *counts)
    names = {k: ", ".join([str(getattr(d, "id", d)) for d in ds]) for k, ds in parts.items()}
    width = max(36.0, 12 + 7.0 * max(map(len, names.values())))
    drawn = []
    for k, (place, name) in enumerate(names.items()):
        row, column = place if len(place) == 2 else (0, *place)
        fill = _FILLS[k % len(_FILLS)]
        drawn.append(_box(1 + column * width, 1 + row * 26, width - 2, 24, fill, name))
    size = f'width="{columns * width:.0f}" height="{rows * 26 + 2}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        f"<title>{markup.text(label)}</title>{''.join(drawn)}</svg>"
    )


def mesh(m: Any) -> str:
    """A mesh: its axes, and where each device is."""
    kinds = [str(getattr(t, "value", t)) for t in m.axis_types or ()]
    rows = [
        (f"axis {name!r}", size, kinds[k] if k < len(kinds) else "")
        for k, (name, size) in enumerate(m.shape.items())
    ]
    parts = [
        markup.head(type(m).__name__, f"of {markup.counted(m.size, 'device')}"),
        markup.table(rows),
    ]
    if not isinstance(m, Mesh):
        parts.append(markup.note("no devices: it is for functions that are only traced"))
    elif m.size > policy.DRAWN_DEVICES:
        parts.append(markup.note(f"more than {policy.DRAWN_DEVICES} devices are not drawn"))
    elif m.devices.ndim in (1, 2) and m.size:
        places = {k: [m.devices[k]] for k in [*_indices(m.devices.shape)]}
        parts.append(_picture(places, m.devices.shape, "devices of the mesh, by number"))
    return markup.page(*parts)


def _indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for n in shape:
        found = [(*k, i) for k in found for i in range(n)]
    return found


def _cut(s: NamedSharding) -> str:
    """The first two axes of arrays that lie so, cut into parts."""
    names = spec_names(s.spec)[:2]
    counts = tuple([_size(s.mesh, n) for n in names])
    if not counts:
        return markup.note("every device has the whole array")
    if s.mesh.size > policy.DRAWN_DEVICES:
        return markup.note(f"more than {policy.DRAWN_DEVICES} devices are not drawn")
    shape = [_size(s.mesh, n) for n in spec_names(s.spec)]
    parts: dict[tuple[int, ...], list[Any]] = {}
    for device, index in s.devices_indices_map(shape).items():
        parts.setdefault(tuple([i.start or 0 for i in index[: len(counts)]]), []).append(device)
    more = "; the first two axes are drawn" if len(shape) > 2 else ""
    return _picture(parts, counts, "parts of an array, and who has them") + markup.note(
        f"parts of an array, and the numbers of the devices that have them{more}"
    )


def _size(m: Any, names: tuple[str, ...]) -> int:
    count = 1
    for n in names:
        count *= m.shape[n]
    return count


def sharding(s: Sharding) -> str:
    """How arrays lie on devices."""
    if not isinstance(s, NamedSharding):
        title = markup.head(type(s).__name__)
        if not isinstance(s, SingleDeviceSharding):
            return markup.page(title)
        said = markup.note("all of an array, on one device")
        return markup.page(title, markup.table([("device", s.device)]), said)
    rows: list[tuple[str, Any]] = [("mesh", s.mesh), ("spec", s.spec)]
    for k, names in enumerate(spec_names(s.spec)):
        parts = (
            f"{markup.counted(_size(s.mesh, names), 'part')}, along {', '.join(map(repr, names))}"
            if names
            else "whole"
        )
        rows.append((f"axis {k}", parts))
    drawn = _cut(s) if isinstance(s.mesh, Mesh) else markup.note("of a mesh without devices")
    return markup.page(markup.head("NamedSharding"), markup.table(rows), drawn)


__all__ = ["mesh", "sharding"]
