"""The import of `jax` and `jaxlib`, and of all below them, answered with fnx's modules."""

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from fnx.core import config
from fnx.core.array import withhold
from fnx.jax.array_types import claim
from fnx.jax.missing import note

API = "0.10.2"  # the version of JAX whose names and meanings fnx has

# JAX's public module paths that fnx has; with all below them.
PUBLIC = (
    "ad_checkpoint api_util core custom_batching custom_derivatives debug distributed dlpack dtypes "
    "errors example_libraries experimental export extend flatten_util image interpreters lax nn numpy "
    "ops profiler random ref scipy sharding stages test_util tree tree_util typing version"
).split()
# JAX's arrays are without them: NumPy's functions of its arrays are NumPy's, and give NumPy's arrays.
NUMPY_PROTOCOLS = "__array_ufunc__", "__array_function__"
# Where names stand that JAX has, or still has, in other places.
MOVED = {
    "jax.core": "jax.extend.core",
    "jax.experimental.sparse.bcoo": "jax.experimental.sparse",
    "jax.experimental.sparse.bcsr": "jax.experimental.sparse",
}
OWN = "fnx.jax.src"  # modules for `jax._src` and `jaxlib`
ELSE = "fnx.jax.public"  # public ones that stand nowhere else


def server(name: str) -> str | None:
    """The module of fnx that a module name of JAX or jaxlib means; None if there is none."""
    root, _, rest = name.partition(".")
    if not rest:
        return f"{OWN}.jaxlib" if root == "jaxlib" else f"{OWN}.jax_root"
    first, _, inner = rest.partition(".")
    if root == "jaxlib":
        places = [f"{OWN}.{name}"]
    elif first == "_src":
        places = [f"{OWN}.{inner}" if inner else OWN]
        public = inner.partition(".")[0] in PUBLIC  # else experimental, if it defines their names
        places.append(f"fnx.{inner}" if public else f"fnx.experimental.{inner}")
    else:
        own = f"{ELSE}.{rest.replace('.', '_')}"
        places = [f"fnx.{rest}", own] if first in PUBLIC else [own]
    return next((place for place in places if _exists(place)), None)


def _exists(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class ServedModule(ModuleType):
    """A module of fnx that is served under a name of JAX's, and says what it does not have."""

    def __setattr__(self, name: str, value: Any) -> None:
        """A part that fnx imports for itself is found here, and no import asks for it."""
        super().__setattr__(name, value)
        serve_part(self, name, value)

    def __getattr__(self, name: str) -> Any:
        served = _names.get(self.__name__)
        if served is None or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name.islower() and server(f"{served}.{name}"):  # that stands elsewhere
            return importlib.import_module(f"{served}.{name}")
        moved = importlib.import_module(MOVED[served]) if served in MOVED else None
        if name in getattr(moved, "__all__", ()):
            return getattr(moved, name)
        asked = note(f"{served}.{name}")
        raise AttributeError(
            f"fnx has no {served}.{name}, which {asked.library} asks for at {asked.place}. "
            f"If {asked.library} needs a newer JAX than {API}, take an older release of it; "
            "fnx.jax.report() lists all that is missing.",
            name=name,
            obj=self,
        )


_names: dict[str, str] = {}  # of fnx's modules: the name under which each was asked for first


def serve(module: ModuleType, name: str) -> None:
    """Let a module of fnx, and those in it, say what is missing in them under JAX's names."""
    _names.setdefault(module.__name__, name)
    if type(module) is ModuleType:
        module.__class__ = ServedModule
        for part, value in list(vars(module).items()):
            serve_part(module, part, value)


def serve_part(module: ModuleType, name: str, value: Any) -> None:
    """`serve` of what was put into a module, if that is one that stands in it and has its name there."""
    place = f"{module.__name__}.{name}"
    if type(value) is ModuleType and value.__name__ == place and not place.startswith((OWN, ELSE)):
        serve(value, f"{_names[module.__name__]}.{name}")


class _Loader(Loader):
    """Gives fnx's own module, so that no thread ever sees an empty one in its place."""

    def __init__(self, place: str):
        self.place = place
        self.own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found = importlib.import_module(self.place)
        self.own_spec = found.__spec__
        serve(found, spec.name)
        return found

    def exec_module(self, module: ModuleType) -> None:
        """It ran under its own name; the import system wrote the name that was asked for into it."""
        module.__spec__ = self.own_spec


class Finder(DistributionFinder):
    """Answers for `jax` and `jaxlib` before anything that is installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in ("jax", "jaxlib"):
            return None
        place = server(name)
        if place is None:
            asked = note(name)
            raise ModuleNotFoundError(
                f"fnx has no module {name}, which {asked.library} imports at {asked.place}; "
                "fnx.jax.report() lists all that is missing",
                name=name,
            )
        return ModuleSpec(name, _Loader(place), is_package=True)

    def find_distributions(  # type: ignore[override]
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """What `importlib.metadata.version("jax")` reads."""
        name = None if context is None else context.name
        return [_Metadata(name)] if name in ("jax", "jaxlib") else []


class _Metadata(Distribution):
    def __init__(self, name: str):
        self.of = name

    def read_text(self, filename: str) -> str | None:
        text = f"Metadata-Version: 2.1\nName: {self.of}\nVersion: {API}\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:  # type: ignore[override]
        return Path(__file__).with_name(str(path))


def install() -> None:
    """Serve `jax` from now on; ImportError if the real one is already there."""
    for root in ("jax", "jaxlib"):
        loaded = sys.modules.get(root)
        if loaded is not None and not isinstance(loaded, ServedModule):
            raise ImportError(
                f"the real {root} is already loaded, from {getattr(loaded, '__file__', '?')}: "
                "import fnx.jax before anything that imports JAX, or start the program with "
                "`python -m fnx.jax`"
            )
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        withhold(NUMPY_PROTOCOLS)
        claim()
        config.callback_arrays.set(True)
