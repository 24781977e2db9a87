"""The last layer of an image of ours: its source, and the bytecode of it.

Everything else is in the image below, which changes rarely. So a change of one line makes an archive of a megabyte or two, and a node
imports no more than that.

The bytecode is the one that the image's Python would write: that Python compiles, out of the images' base, without a container around it.
"""

import pathlib

from tests.testbed import caching, images, layout, oci, progress

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_UNPACKED = ("./usr/bin/python3*", "./usr/lib/python3*", f"./{_LIBRARIES}/*")


def write(archive: pathlib.Path, reference: str, below: pathlib.Path, source: pathlib.Path, base: pathlib.Path) -> None:
    """Write the archive of an image: that of the archive ``below``, and over it what the directory ``source`` holds.

    ``base`` is a tar file with the root of the images' base, which has a Python.

    Raises:
        progress.StepFailed: the source cannot be compiled, or ``below`` is no archive of an image.
    """
    compile_source(source, base)
    oci.write_over(archive, reference, below, oci.layer_of(source))


def compile_source(source: pathlib.Path, base: pathlib.Path) -> None:
    """Write the bytecode of all modules below ``source``, as if ``source`` was the root of the image.

    Raises:
        progress.StepFailed: a module is no Python.
    """
    root = _interpreter(base)
    loader = [str(root / _LIBRARIES / "ld-linux-x86-64.so.2"), "--library-path", str(root / _LIBRARIES)]
    # What the image never does itself is to look whether a module is newer than its bytecode.
    options = ["-q", "-s", str(source), "-p", "/", "--invalidation-mode", "unchecked-hash", str(source)]
    # The order of a set's elements in bytecode follows the seed: equal sources give equal layers.
    environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": ""}  # beside the modules
    progress.run([*loader, root / "usr/bin/python3", "-S", "-m", "compileall", *options], environment=environment)


def _interpreter(base: pathlib.Path) -> pathlib.Path:
    """Return a directory with the Python of the images' base, and what it needs."""

    def unpack(directory: pathlib.Path) -> None:
        progress.run(["tar", "--extract", "--file", base, "--directory", directory, "--wildcards", *_UNPACKED])

    return caching.once(interpreter_path(base), "Unpack the Python of the images' base", unpack)


def interpreter_path(base: pathlib.Path) -> pathlib.Path:
    """Return where the Python of a base is unpacked to; it need not be there."""
    return layout.cache() / f"interpreter-{images.digest_of([base.parent.name, repr(_UNPACKED)])}"
