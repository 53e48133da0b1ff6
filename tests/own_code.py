"""Users' modules in tests: importable for a while, then forgotten with all that they registered."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from unittest.mock import patch

from deepsiam import registry

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def registry_of(kind: str) -> registry.Registry[object]:
    module, _, name = registry.REGISTRIES[kind].rpartition(".")
    found: registry.Registry[object] = getattr(import_module(module), name)
    return found


@contextmanager
def own_code(*folders: Path) -> Iterator[None]:
    """Let modules and entry points of these folders be found."""
    before = {*sys.modules}
    with ExitStack() as stack:
        for kind in registry.REGISTRIES:
            for table in (registry_of(kind)._values, registry_of(kind).homes):
                stack.enter_context(patch.dict(table))
        stack.enter_context(patch.object(sys, "path", [*map(str, folders), *sys.path]))
        stack.callback(registry._installed.cache_clear)
        registry._installed.cache_clear()
        invalidate_caches()
        yield
    for name in {*sys.modules} - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


def write_module(folder: Path, name: str, text: str) -> Path:
    """Write a module, or one of a package, by its dotted name."""
    *packages, module = name.split(".")
    for depth in range(len(packages)):
        package = folder.joinpath(*packages[: depth + 1])
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
    file = folder.joinpath(*packages, f"{module}.py")
    file.write_text(text)
    return file


def write_entry_point(folder: Path, name: str, module: str) -> None:
    """Do as an installed package does: name a module in the group of entry points."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    with open(info / "entry_points.txt", "a") as file:
        file.write(f"[deepsiam]\n{name} = {module}\n" if file.tell() == 0 else f"{name} = {module}\n")
