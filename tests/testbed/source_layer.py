"""The last layer of our images: the source and its bytecode.

The image below has all else.

The Python of the images' base compiles the bytecode, without a container, so it is the same as the image's own.
"""

import pathlib

from tests.testbed import caching, images, layout, oci, progress

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_UNPACKED = ("./usr/bin/python3*", "./usr/lib/python3*", f"./{_LIBRARIES}/*")


def write(archive: pathlib.Path, reference: str, below: pathlib.Path, source: pathlib.Path, base: pathlib.Path) -> None:
    """Write an image's archive: the archive ``below`` plus a layer with the content of ``source``.

    ``base`` is a tar file with the images' base, which has a Python.
    """
    compile_source(source, base)
    oci.write_over(archive, reference, below, oci.layer_of(source))


def compile_source(source: pathlib.Path, base: pathlib.Path) -> None:
    root = _interpreter(base)
    loader = [str(root / _LIBRARIES / "ld-linux-x86-64.so.2"), "--library-path", str(root / _LIBRARIES)]
    # The image's Python never compares a module's time with its bytecode's.
    options = ["-q", "-s", str(source), "-p", "/", "--invalidation-mode", "unchecked-hash", str(source)]
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
