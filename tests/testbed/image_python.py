"""The Python of virt-api's image, to run this machine's sources, so benchmarks measure what users install.

One compiled for development may be a quarter slower.
"""

import os
import pathlib
import shutil

from tests.testbed import caching, images, layout, packages, progress, project_images

_PROCESS = next(process for process in project_images.PROCESSES if process.name == "virt-api")

# Everything of this machine stays visible except its system: /mnt, which every Linux has, becomes the root. `exec` at each step leaves only
# the started process.
_PROGRAM = """#!/bin/sh
exec unshare --mount sh -ec '
    root=$1
    directory=$(pwd)
    shift
    mount --bind "$root" /mnt
    for each in /*; do
        case $each in
            /usr | /bin | /sbin | /lib* | /etc | /mnt | /lost+found) ;;
            *) if [ -d "$each" ]; then mkdir -p "/mnt$each"; mount --rbind "$each" "/mnt$each"; fi ;;
        esac
    done
    exec /usr/sbin/chroot /mnt /usr/bin/env --chdir="$directory" /usr/bin/python3 "$@"
' sh "${0%/*}/root" "$@"
"""


def ensure() -> pathlib.Path:
    """Return a program that takes Python's arguments and runs in the image's file system.

    It uses the sources of the working directory (``-m``). Signals reach Python itself.
    """
    base, wheels = project_images.base_archive_path(), project_images.wheels_path(_PROCESS)
    wanted = layout.cache() / f"image-python-{images.digest_of([base.name, wheels.name, _PROGRAM])}"
    if not wanted.exists():
        packages.install()
    return caching.once(wanted, f"Unpack the Python of {_PROCESS.name}'s image", _make) / "python"


def _make(directory: pathlib.Path) -> None:
    root = directory / "root"
    installed = root / project_images.PACKAGES_PATH
    root.mkdir()
    progress.run(["tar", "--extract", "--file", project_images.base_archive() / "base.tar", "--directory", root, "--exclude=./dev/*"])
    installed.mkdir(parents=True, exist_ok=True)
    progress.run(["cp", "--recursive", f"{project_images.wheels(_PROCESS)}/.", installed])
    # Like the image's Containerfile: its Python never writes bytecode.
    compiling = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", f"/{project_images.PACKAGES_PATH}"]
    progress.run(
        ["chroot", root, "python3", *compiling], environment={"PATH": f"{os.environ['PATH']}:/usr/bin:/bin", "PYTHONPYCACHEPREFIX": ""}
    )
    program = directory / "python"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    for older in layout.cache().glob(f"image-python-{'[0-9a-f]' * 12}"):
        shutil.rmtree(older)
