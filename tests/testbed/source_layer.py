"""The last layers of our images: an earlier source with its bytecode, and the changes since.

The Python of the images' base compiles the bytecode, without a container, so it is the same as the image's own.
"""

import pathlib
from collections.abc import Sequence

from tests.testbed import caching, images, layout, oci, progress

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_MOST_BYTES = 2 << 20
"""Compressed about 512 KiB."""
_UNPACKED = ("./usr/bin/python3*", "./usr/lib/python3*", f"./{_LIBRARIES}/*")


def write(archive: pathlib.Path, reference: str, earlier: images.Image, source: pathlib.Path, base: pathlib.Path) -> None:
    """Write an image's archive: ``earlier`` and the changes since. Large changes go into ``earlier``. ``base`` has a Python."""
    assert earlier.below is not None
    with images.locked(earlier):
        old, modules = oci.last_layer_of(earlier.archive), oci.layer_of(source)
        unchanged = bytecode_of_unchanged(old, modules)
        compile_source(source, base, [source / name for name in modules if name.endswith(".py") and name not in unchanged])
        new = {path: old[path] for bytecode in unchanged.values() for path in (bytecode, str(pathlib.PurePosixPath(bytecode).parent))}
        new |= oci.layer_of(source)
        changes = oci.difference(old, new)
        if is_too_large(changes):
            oci.write_over(earlier.archive, earlier.reference, earlier.below.archive, new)
            changes = {}
        oci.write_over(archive, reference, earlier.archive, changes)


def is_too_large(changes: oci.Layer) -> bool:
    return sum(len(content or b"") for _, content in changes.values()) > _MOST_BYTES


def bytecode_of_unchanged(old: oci.Layer, source: oci.Layer) -> dict[str, str]:
    """Return bytecode paths of modules that are equal in both."""
    paths = [path for path in map(pathlib.PurePosixPath, old) if path.suffix == ".pyc"]
    found = {str(path.parent.parent / f"{path.name.partition('.')[0]}.py"): str(path) for path in paths}
    return {module: bytecode for module, bytecode in found.items() if module in source and source[module] == old.get(module)}


def compile_source(source: pathlib.Path, base: pathlib.Path, modules: Sequence[pathlib.Path]) -> None:
    if not modules:
        return
    root = _interpreter(base)
    loader = [str(root / _LIBRARIES / "ld-linux-x86-64.so.2"), "--library-path", str(root / _LIBRARIES)]
    # The image's Python never compares a module's time with its bytecode's.
    options = ["-q", "-s", str(source), "-p", "/", "--invalidation-mode", "unchecked-hash", *map(str, modules)]
    # The seed determines the order of set elements in bytecode, so equal sources give equal layers.
    environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": ""}  # next to the modules
    progress.run([*loader, root / "usr/bin/python3", "-S", "-m", "compileall", *options], environment=environment)


def _interpreter(base: pathlib.Path) -> pathlib.Path:
    def unpack(directory: pathlib.Path) -> None:
        progress.run(["tar", "--extract", "--file", base, "--directory", directory, "--wildcards", *_UNPACKED])

    return caching.once(interpreter_path(base), "Unpack the Python of the images' base", unpack)


def interpreter_path(base: pathlib.Path) -> pathlib.Path:
    """Return the path of a base's unpacked Python, which may not exist yet."""
    return layout.cache() / f"interpreter-{images.digest_of([base.parent.name, repr(_UNPACKED)])}"
